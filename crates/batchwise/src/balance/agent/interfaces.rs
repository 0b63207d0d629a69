//! The interfaces that packets arrive at: one that is deleted and made anew gets the program again.

use std::time::Duration;

use batchwise_bpf::balance::Change;

use super::{Agent, due};

/// Interfaces are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Agent {
    pub(super) fn follow_interfaces(&mut self) -> anyhow::Result<()> {
        if !due(&mut self.interfaces.looked, LOOK_EVERY) {
            return Ok(());
        }
        for (name, change) in self.balancer.follow_interfaces()? {
            let said = self.interfaces.said.remove(&name);
            let detail = match change {
                Change::Attached => {
                    let detail = format!("{name} is there anew: its packets are forwarded again");
                    self.journal.event("interface", &[], detail);
                    continue;
                }
                Change::Gone => continue,
                Change::Refused(error) => {
                    format!(
                        "{name} is there anew, and what clients send there is not forwarded: {error}"
                    )
                }
            };
            if said.as_ref() != Some(&detail) {
                self.journal.warn("interface", &[], &detail);
            }
            self.interfaces.said.insert(name, detail);
        }
        // also those that were when the agent started
        for name in self.balancer.detached() {
            if self.interfaces.said.contains_key(&name) {
                continue;
            }
            let detail = format!(
                "{name} is gone, and with it what clients send there, until there is an interface of this \
                 name again"
            );
            self.journal.warn("interface", &[], &detail);
            self.interfaces.said.insert(name, detail);
        }
        Ok(())
    }
}
