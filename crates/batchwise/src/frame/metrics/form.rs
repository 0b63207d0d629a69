//! The forms in which metrics are served, and which of them a client asks for.

use anyhow::Result;
use prometheus_client::encoding::prometheus_protobuf::encode_to_vec;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// How OpenMetrics 1.0 text is called in HTTP.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How Prometheus's own messages are called, in which native histograms are.
const MESSAGES: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Text,
    Protobuf,
}

impl Form {
    /// What a client likes best of what it accepts, by the header of that name; text unless it is
    /// protobuf.
    pub fn wanted(accept: &str) -> Self {
        let mut best = (0.0, Self::Text);
        for range in accept.split(',') {
            let mut words = range.split(';').map(str::trim);
            let has = |wanted: &str| words.clone().any(|word| word == wanted);
            let form = match MESSAGES.split("; ").all(has) {
                true => Self::Protobuf,
                false => Self::Text,
            };
            let quality = words.find_map(|word| word.strip_prefix("q=")?.parse().ok());
            let quality = quality.unwrap_or(1.0);
            if quality > best.0 {
                best = (quality, form);
            }
        }
        best.1
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => OPEN_METRICS,
            Self::Protobuf => MESSAGES,
        }
    }

    pub fn encode(self, registry: &Registry) -> Result<Vec<u8>> {
        match self {
            Self::Text => {
                let mut all = String::new();
                text::encode(&mut all, registry)?;
                Ok(all.into_bytes())
            }
            Self::Protobuf => Ok(encode_to_vec(registry)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_is_for_those_that_like_it_best() {
        let messages = MESSAGES.replace(' ', "");
        let text = "application/openmetrics-text;version=1.0.0";
        for (accept, form) in [
            // Prometheus with native histograms, 2.42 and 3
            (
                format!("{messages},{text};q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
                Form::Protobuf,
            ),
            (
                format!("{messages};q=0.6,{text};escaping=allow-utf-8;q=0.5,*/*;q=0.2"),
                Form::Protobuf,
            ),
            // without
            (
                format!("{text},text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
                Form::Text,
            ),
            (format!("{text};q=0.6,{messages};q=0.5"), Form::Text),
            ("*/*".to_owned(), Form::Text),
            (String::new(), Form::Text),
            // other messages, or another encoding
            (messages.replace("delimited", "text"), Form::Text),
            ("application/vnd.google.protobuf".to_owned(), Form::Text),
            (format!("{messages};q=nonsense"), Form::Protobuf),
            (format!("{messages};q=0"), Form::Text),
        ] {
            assert_eq!(Form::wanted(&accept), form, "{accept}");
        }
    }
}
