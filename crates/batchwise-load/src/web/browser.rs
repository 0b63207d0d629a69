//! What a browser says on one connection: page after page, a few requests in flight.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Config;
use super::http::{Parser, Response};
use super::site::{Object, Site};
use crate::causal::link::{Answer, Cause, Dialogue};
use crate::causal::pace::Pace;
use crate::causal::page::Walk;

/// The bytes of all requests of a site, with the headers of a common browser.
pub(crate) struct Requests(Vec<Vec<u8>>);

impl Requests {
    pub fn new(site: &Site, host: SocketAddr, gzip: bool) -> Self {
        let encoding = if gzip { "gzip, deflate" } else { "identity" };
        let request = |object: &Object| {
            format!(
                "GET /{} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) \
                 batchwise\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.5\r\n\
                 Accept-Encoding: {encoding}\r\nConnection: keep-alive\r\n\r\n",
                object.path
            )
            .into_bytes()
        };
        Self(site.objects.iter().map(request).collect())
    }
}

pub(crate) struct Browser {
    /// Pages that are complete.
    pub pages: u64,
    site: Arc<Site>,
    requests: Arc<Requests>,
    in_flight: usize,
    pages_per_connection: Option<f64>,
    /// No further page on this connection.
    leaves: bool,
    rng: SmallRng,
    pace: Pace,
    /// When the next page begins; between pages only.
    begins: Option<u64>,
    page: usize,
    walk: Walk,
    /// The nodes in flight, oldest first.
    asked: VecDeque<u32>,
    /// When the last page ended.
    page_ended: Option<u64>,
    parser: Parser,
}

impl Browser {
    pub fn new(
        site: Arc<Site>,
        requests: Arc<Requests>,
        mut pace: Pace,
        config: &Config,
        seed: u64,
    ) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let first = pace.first(&mut rng);
        Self {
            pages: 0,
            site,
            requests,
            in_flight: config.in_flight,
            pages_per_connection: config.pages_per_connection,
            leaves: false,
            rng,
            pace,
            begins: Some(first),
            page: 0,
            walk: Walk::default(),
            asked: VecDeque::with_capacity(config.in_flight),
            page_ended: None,
            parser: Parser::default(),
        }
    }

    fn fault(&self, object: &Object, response: &Response) -> Option<String> {
        let Response {
            status,
            body,
            encoded,
            ..
        } = *response;
        if status != 200 {
            return Some(format!(
                "status {status} for /{} (does the server serve what `batchwise load web-site` \
                 wrote?)",
                object.path
            ));
        }
        (!encoded && body != object.size).then(|| {
            format!(
                "{body} B for /{}, which has {} B (is the server's site from the same \
                 description? `batchwise load web-site` leaves it as site.toml)",
                object.path, object.size
            )
        })
    }
}

impl Dialogue for Browser {
    fn next(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Cause> {
        if self.leaves {
            return None;
        }
        let mut cause = Cause::Response;
        if let Some(begins) = self.begins {
            if now < begins {
                return None;
            }
            // Without a pause the response that ended the last page is what it waited for.
            if self.page_ended.is_none_or(|ended| ended < begins) {
                cause = Cause::Clock;
            }
            self.begins = None;
            self.page = self.site.pick(&mut self.rng);
            self.walk.begin(&self.site.pages[self.page]);
        }
        if self.asked.len() == self.in_flight {
            return None;
        }
        let node = self.walk.next()?;
        let object = self.site.pages[self.page].object(node);
        out.extend_from_slice(&self.requests.0[object as usize]);
        self.asked.push_back(node);
        Some(cause)
    }

    fn take(&mut self, bytes: &[u8], now: u64) -> Result<(usize, Option<Answer>), String> {
        let (taken, response) = self.parser.take(bytes)?;
        let Some(response) = response else {
            return Ok((taken, None));
        };
        let node = self
            .asked
            .pop_front()
            .ok_or("a response that nobody had asked for")?;
        let page = &self.site.pages[self.page];
        let object = &self.site.objects[page.object(node) as usize];
        let fault = self.fault(object, &response);
        self.walk.answered(page, node);
        if self.walk.finished() {
            self.pages += 1;
            self.page_ended = Some(now);
            self.begins = Some(self.pace.after(now, &mut self.rng));
            let last = |pages: f64| self.rng.random_bool(1.0 / pages);
            self.leaves = self.pages_per_connection.is_some_and(last);
        }
        let bytes = response.bytes;
        Ok((taken, Some(Answer { bytes, fault })))
    }

    fn due(&self) -> Option<u64> {
        self.begins
    }

    fn parts(&self) -> bool {
        self.leaves
    }

    fn renews(&self) -> bool {
        self.pages_per_connection.is_some()
    }

    fn start_over(&mut self, lost: Option<u64>) {
        self.leaves = false;
        // No response on the next connection is why its first page begins.
        self.page_ended = None;
        if let Some(earliest) = lost {
            self.parser = Parser::default();
            self.walk = Walk::default();
            self.asked.clear();
            let next = self.begins;
            let next = next.unwrap_or_else(|| self.pace.after(earliest, &mut self.rng));
            self.begins = Some(next.max(earliest));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::causal::distribution::Distribution;
    use crate::web::Description;

    fn browser(pause_ns: f64) -> Browser {
        let config = Config::parse_from(["web", "--addr", "10.0.0.1:80"]);
        let site = Site::build(&Description::read(None).unwrap()).unwrap();
        let requests = Requests::new(&site, config.options.addr, true);
        let pace = Pace::Think(Distribution::Constant(pause_ns));
        Browser::new(Arc::new(site), Arc::new(requests), pace, &config, 1)
    }

    /// Answers the oldest request.
    fn answer(browser: &mut Browser, now: u64) -> Answer {
        let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n";
        browser.take(head, now).unwrap().1.expect("a response")
    }

    fn burst(browser: &mut Browser, now: u64) -> Vec<Cause> {
        let mut out = Vec::new();
        std::iter::from_fn(|| browser.next(now, &mut out)).collect()
    }

    #[test]
    fn the_root_goes_alone_then_as_many_as_may_be_in_flight() {
        let mut browser = browser(0.0);
        assert_eq!(burst(&mut browser, 0), [Cause::Clock]);
        assert_eq!(answer(&mut browser, 10).fault, None);
        assert_eq!(burst(&mut browser, 10), [Cause::Response; 4]);
        answer(&mut browser, 20);
        assert_eq!(burst(&mut browser, 20), [Cause::Response]);
    }

    #[test]
    fn a_page_after_a_pause_is_caused_by_the_clock_and_one_at_once_by_the_response() {
        for (pause, wanted) in [(0.0, Cause::Response), (1e6, Cause::Clock)] {
            let mut browser = browser(pause);
            let mut now = browser.due().unwrap();
            burst(&mut browser, now);
            while browser.pages == 0 {
                now += 10;
                answer(&mut browser, now);
                if browser.pages == 0 {
                    burst(&mut browser, now);
                }
            }
            let begins = browser.due().unwrap();
            assert_eq!(begins, now + pause as u64);
            assert_eq!(burst(&mut browser, begins), [wanted]);
        }
    }

    #[test]
    fn a_wrong_status_and_a_wrong_length_are_faults() {
        for (head, why) in [
            ("404 Not Found\r\nContent-Length: 0", "status 404"),
            ("200 OK\r\nContent-Length: 0", "same description"),
        ] {
            let mut browser = browser(0.0);
            burst(&mut browser, 0);
            let text = format!("HTTP/1.1 {head}\r\n\r\n");
            let (_, answer) = browser.take(text.as_bytes(), 1).unwrap();
            let fault = answer.unwrap().fault.expect("a fault");
            assert!(fault.contains(why), "{fault}");
        }
    }
}
