//! What drops from the head of a flow's queue: CoDel (RFC 8289), and COBALT, CAKE's CoDel with BLUE
//! (Linux' sch_cake.c).

/// What is acceptable as a standing queue, ns, and for how long it may be exceeded.
const TARGET: u64 = 5_000_000;
const INTERVAL: u64 = 100_000_000;

fn next(at: u64, count: u32) -> u64 {
    at + (INTERVAL as f64 / f64::from(count.max(1)).sqrt()) as u64
}

/// Which of them.
pub enum Aqm {
    Codel(Codel),
    Cobalt(Cobalt),
}

#[derive(Default)]
pub struct Codel {
    first_above: Option<u64>,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Codel {
    /// Whether the packet at the head, which waited for so long, is dropped; `backlog` is the queue's.
    pub fn drops(&mut self, now: u64, waited: u64, backlog: u32) -> bool {
        if waited < TARGET || backlog <= 1500 {
            self.first_above = None;
            self.dropping = false;
            return false;
        }
        let since = *self.first_above.get_or_insert(now + INTERVAL);
        if self.dropping {
            let due = now >= self.drop_next;
            if due {
                self.count += 1;
                self.drop_next = next(self.drop_next, self.count);
            }
            return due;
        }
        if now < since {
            return false;
        }
        self.dropping = true;
        let delta = self.count - self.last_count;
        let recent = now < self.drop_next + 16 * INTERVAL;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = next(now, self.count);
        true
    }
}

#[derive(Default)]
pub struct Cobalt {
    count: u32,
    drop_next: u64,
    dropping: bool,
    /// BLUE's, and when it last changed.
    chance: f64,
    changed: u64,
}

const MORE: f64 = 1.0 / 256.0;
const LESS: f64 = 1.0 / 4096.0;

impl Cobalt {
    /// cobalt_should_drop(); `dice` is uniform in 0 to 1.
    pub fn drops(&mut self, now: u64, waited: u64, dice: f64) -> bool {
        let mut due = self.count > 0 && now >= self.drop_next;
        let mut drops = false;
        if waited > TARGET {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = next(now, self.count);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        if due && self.dropping {
            drops = true;
            self.count += 1;
            self.drop_next = next(self.drop_next, self.count);
        } else {
            while due {
                self.count -= 1;
                self.drop_next = next(self.drop_next, self.count);
                due = self.count > 0 && now >= self.drop_next;
            }
        }
        drops |= dice < self.chance;
        if self.count == 0 {
            self.drop_next = now + INTERVAL;
        } else if now > self.drop_next && !drops {
            self.drop_next = now;
        }
        drops
    }

    /// cobalt_queue_full(): a packet of this queue was dropped, as all queues together are full.
    pub fn full(&mut self, now: u64) {
        if now - self.changed > TARGET {
            self.chance = (self.chance + MORE).min(1.0);
            self.changed = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// cobalt_queue_empty().
    pub fn empty(&mut self, now: u64) {
        if self.chance > 0.0 && now - self.changed > TARGET {
            self.chance = (self.chance - LESS).max(0.0);
            self.changed = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = next(self.drop_next, self.count);
        }
    }
}
