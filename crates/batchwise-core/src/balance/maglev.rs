//! The table that turns a connection's hash into a backend, as Maglev's does, but with shares that
//! follow the weights exactly and with few moves when weights change.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Slots of a table.
pub const SLOTS: usize = 65_537;

/// A backend's index; 0 is nobody.
pub type BackendId = u16;

/// A backend that may own slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What the table says.
    pub id: BackendId,
    /// What names the backend wherever and whenever the table is made, see [`identity`].
    pub identity: u64,
    /// Its share is this over the sum of all members'; 0 owns nothing.
    pub weight: u32,
}

/// The identity of a backend with this name: FNV-1a, and a finaliser that spreads it.
pub fn identity(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash)
}

/// Slots that differ, with what they now say.
pub fn delta(old: &[BackendId], new: &[BackendId]) -> Vec<(u32, BackendId)> {
    let before = old
        .iter()
        .copied()
        .map(Some)
        .chain(core::iter::repeat(None));
    new.iter()
        .zip(before)
        .zip(0u32..)
        .filter(|((now, before), _)| Some(**now) != *before)
        .map(|((now, _), slot)| (slot, *now))
        .collect()
}

/// The table of these members: as many slots for each as its weight's share, to less than one slot
/// (largest remainder); all 0 when no member has weight. The same members give the same table in any
/// order, on any machine. Members of id 0 and repeated ids are left out.
///
/// Each member asks for slots in its own order, drawn from its identity; its k-th claim is due
/// at k / weight, and the slot goes to whose claim is due first, as in turn-taking (Maglev, §3.4).
/// A member that has its share asks no more. So the table is the stable matching of members and
/// slots: there is only one, whoever begins, and a change of one weight displaces only those whose
/// claims were due about when the shares filled up.
pub fn fill(members: &[Member], slots: usize) -> Vec<BackendId> {
    let quotas = quotas(members, slots);
    let mut askers: Vec<Asker> = quotas
        .iter()
        .map(|(m, lacks)| Asker::new(m, *lacks))
        .collect();
    let mut granted = vec![FREE; slots];
    let mut lacking: Vec<u16> = (0u16..).take(askers.len()).collect();
    while let Some(rank) = lacking.pop() {
        while askers[usize::from(rank)].lacks > 0 {
            let (slot, claim) = askers[usize::from(rank)].claim(rank, slots);
            let held = granted[slot];
            if claim >= held || (held != FREE && owner(held) == rank) {
                continue;
            }
            granted[slot] = claim;
            askers[usize::from(rank)].lacks -= 1;
            if held != FREE {
                let loser = &mut askers[usize::from(owner(held))];
                loser.lacks += 1;
                if loser.lacks == 1 {
                    lacking.push(owner(held));
                }
            }
        }
    }
    let id = |claim: &u64| match *claim {
        FREE => 0,
        taken => quotas[usize::from(owner(taken))].0.id,
    };
    granted.iter().map(id).collect()
}

/// Nobody's slot: later than any claim.
const FREE: u64 = u64::MAX;
/// A claim is when it is due, as the bits of a positive float (whose order is that of the numbers),
/// with the member's rank in place of the last ones.
const RANK: u64 = 0xffff;
/// So many times the table, claims are drawn at random; then they go round it once, so that they
/// reach every slot.
const DRAWN: u64 = 8;

fn owner(claim: u64) -> u16 {
    (claim & RANK) as u16
}

struct Asker {
    identity: u64,
    period: f64,
    asked: u64,
    lacks: u32,
}

impl Asker {
    fn new(member: &Member, lacks: u32) -> Self {
        Self {
            identity: mix(member.identity),
            period: 1.0 / f64::from(member.weight),
            asked: 0,
            lacks,
        }
    }

    fn claim(&mut self, rank: u16, slots: usize) -> (usize, u64) {
        let (size, asked) = (slots as u64, self.asked);
        self.asked += 1;
        let drawn = mix(self.identity.wrapping_add(asked.wrapping_mul(GOLDEN)));
        let slot = if asked < DRAWN * size {
            ((drawn >> 32) * size) >> 32
        } else {
            (self.identity % size + asked) % size
        };
        // Within its turn at any moment, or members of the same weight would tie each time.
        let due = (asked as f64 + f64::from(drawn as u16) / 65_536.0) * self.period;
        (slot as usize, (due.to_bits() & !RANK) | u64::from(rank))
    }
}

/// Members that own slots, in the order of their identities, and how many.
fn quotas(members: &[Member], slots: usize) -> Vec<(Member, u32)> {
    let mut members: Vec<Member> = members
        .iter()
        .copied()
        .filter(|m| m.id > 0 && m.weight > 0)
        .collect();
    members.sort_unstable_by_key(|m| (m.id, m.identity, m.weight));
    members.dedup_by_key(|m| m.id);
    members.sort_unstable_by_key(|m| (m.identity, m.id));
    let all: u64 = members.iter().map(|m| u64::from(m.weight)).sum();
    let size = slots as u64;
    let mut quotas: Vec<(Member, u32)> = Vec::with_capacity(members.len());
    let mut remainders = Vec::with_capacity(members.len());
    let mut left = size;
    for (at, member) in members.into_iter().enumerate() {
        let parts = u64::from(member.weight) * size;
        left -= parts / all;
        quotas.push((member, (parts / all) as u32));
        remainders.push((Reverse(parts % all), at));
    }
    remainders.sort_unstable();
    for (_, at) in remainders.into_iter().take(left as usize) {
        quotas[at].1 += 1;
    }
    quotas.retain(|(_, slots)| *slots > 0);
    quotas
}

/// 2^64 over the golden ratio: SplitMix64's step.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finaliser.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
