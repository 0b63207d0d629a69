//! The table that turns a connection's hash into a backend: Maglev's permutations, with shares that
//! follow the weights exactly.

use alloc::vec;
use alloc::vec::Vec;

/// Slots of a table: a prime, as Maglev's permutations need it.
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

/// The table of these members: as many slots for each as its weight's share, to less than one slot;
/// all 0 when no member has weight. `slots` is to be prime. The same members give the same table in
/// any order, on any machine.
pub fn fill(members: &[Member], slots: usize) -> Vec<BackendId> {
    let mut table = vec![0; slots];
    let mut members: Vec<Member> = members.iter().copied().filter(|m| m.weight > 0).collect();
    members.sort_unstable_by_key(|m| (m.identity, m.id));
    let most = members.iter().map(|m| u64::from(m.weight)).max();
    let Some(most) = most.filter(|_| slots > 1) else {
        return table;
    };
    let size = slots as u64;
    let mut turns: Vec<(u64, u64, u64, Member)> = members
        .iter()
        .map(|m| {
            let (at, skip) = (mix(m.identity ^ 1), mix(m.identity ^ 2));
            (0, at % size, skip % (size - 1) + 1, *m)
        })
        .collect();
    let mut left = slots;
    loop {
        for (credit, at, skip, member) in &mut turns {
            *credit += u64::from(member.weight);
            if *credit < most {
                continue;
            }
            *credit -= most;
            while table[*at as usize] != 0 {
                *at = (*at + *skip) % size;
            }
            table[*at as usize] = member.id;
            left -= 1;
            if left == 0 {
                return table;
            }
        }
    }
}

/// SplitMix64's finaliser.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
