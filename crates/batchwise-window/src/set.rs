//! Sockets whose application waits until TCP can send.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use batchwise_core::window::patience;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::ipproto;
use rustix::net::sockopt::socket_protocol;

use crate::agent::{Agent, Mode};
use crate::info::{Info, low_water, not_sent_low_water};
use crate::key::Key;
use crate::level::Level;
use crate::link::{Link, Refusal};
use crate::protocol::MOST_SLOTS;
use crate::stats::Stats;
use crate::timer::{Timer, now};

/// Sockets that wait until TCP can send. Its descriptor is readable when [`Self::ready`] has something to
/// say: for epoll, poll, io_uring, or tokio's `AsyncFd`.
pub struct Set {
    epoll: OwnedFd,
    inner: Mutex<Inner>,
}

struct Inner {
    agent: Agent,
    stats: Stats,
    timer: Timer,
    /// By slot; that of slot 0 is never used.
    members: Vec<Member>,
    free: Vec<u32>,
    /// The slots of the descriptors that epoll has.
    watched: HashMap<RawFd, u32>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    turn: u32,
    used: bool,
    at_least: u32,
    /// The link that it is registered with, …
    link: u32,
    /// … or one whose agent cannot register it, …
    refused: u32,
    /// … for this reason.
    why: String,
    /// Until when nothing is done if nothing rings, ns; `None`: it does not wait.
    waits: Option<u64>,
    /// What may still be written; `None`: it is not known, and the kernel is asked.
    level: Option<Level>,
    /// What [`Set::wait`] gave, until it is told what was written of that.
    given: Option<Level>,
    /// Its descriptor, which epoll has.
    watched: Option<RawFd>,
    /// TCP_NOTSENT_LOWAT before we have set it.
    low_water: Option<u32>,
}

const TIMER: u64 = u64::MAX;
const AGENT: u64 = u64::MAX - 1;
/// Without the agent whoever waits looks again after this time, ns, whatever epoll says.
const FALLBACK: u64 = 100_000_000;
/// Events that are taken from epoll at a time.
const BATCH: usize = 256;

impl Set {
    /// An empty one, with the agent if there is one.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = Timer::new()?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let set = Self {
            epoll,
            inner: Mutex::new(Inner {
                agent: Agent::new(),
                stats: Stats::default(),
                timer,
                members: vec![Member::default()],
                free: Vec::new(),
                watched: HashMap::new(),
            }),
        };
        set.look();
        Ok(set)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for an agent, if it is time. Others go on meanwhile, without it.
    fn look(&self) {
        if !self.lock().agent.is_wanted() {
            return;
        }
        let looked = Link::reach().and_then(|link| {
            // its end only: an answer is for whoever asked
            let end = EventFlags::RDHUP;
            epoll::add(&self.epoll, &link, EventData::new_u64(AGENT), end)?;
            Ok(link)
        });
        self.lock().agent.found(looked);
    }

    /// Who rings, now.
    pub fn mode(&self) -> Mode {
        self.lock().agent.mode()
    }

    /// Who rings for the socket with this key: the agent may be there, and not be able to.
    pub fn mode_of(&self, key: Key) -> Mode {
        let mut inner = self.lock();
        let links = inner.agent.links;
        match inner.member(key) {
            Some(member) if links > 0 && member.refused == links => {
                Mode::Fallback(member.why.clone())
            }
            _ => inner.agent.mode(),
        }
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        self.lock().stats.clone()
    }

    /// Takes in a connected TCP socket, whose application wants to be woken when congestion window and peer
    /// allow `at_least` so many bytes, and the device takes some. One that is still connecting may be added:
    /// it has any space until it is connected.
    ///
    /// # Errors
    /// When it is not TCP's (MPTCP's is not), or not connected, or the set is full (16,383 sockets).
    pub fn add(&self, socket: BorrowedFd<'_>, at_least: u32) -> io::Result<Key> {
        if socket_protocol(socket)? != Some(ipproto::TCP) {
            return Err(Errno::PROTONOSUPPORT.into());
        }
        if !Info::of(socket)?.is_connected() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut inner = self.lock();
        let slot = match inner.free.pop() {
            Some(slot) => slot,
            None if inner.members.len() < MOST_SLOTS as usize => {
                inner.members.push(Member::default());
                inner.members.len() as u32 - 1
            }
            None => {
                let full = io::ErrorKind::StorageFull;
                return Err(io::Error::new(full, "the set is full"));
            }
        };
        let member = &mut inner.members[slot as usize];
        *member = Member {
            turn: ((member.turn + 1) & i32::MAX as u32).max(1),
            used: true,
            at_least: at_least.max(1),
            ..Member::default()
        };
        let key = Key {
            slot,
            turn: member.turn,
        };
        Ok(key)
    }

    /// Lets go of a socket: before it is closed.
    pub fn remove(&self, key: Key) {
        let mut inner = self.lock();
        let Some(member) = inner.member(key) else {
            return;
        };
        member.used = false;
        // it may be another's by now, if the socket is closed already
        if let Some(fd) = member.watched.take()
            && inner.watched.get(&fd) == Some(&key.slot)
        {
            inner.watched.remove(&fd);
            // SAFETY: a number only: epoll refuses one that it does not have.
            let _ = epoll::delete(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) });
        }
        inner.disarm(key.slot);
        if let Some(slot) = inner.agent.slot(key.slot) {
            slot.turn.store(0, Ordering::Release);
        }
        inner.free.push(key.slot);
    }

    /// How many bytes TCP can send on the socket with this key; `None`: not enough, and [`Self::ready`]
    /// will name the key when this should be asked again. On a socket that is connecting, closed or was reset
    /// there is any space: a write tells what is the matter.
    ///
    /// # Errors
    /// When the key was removed, or the socket is not the one that was added.
    pub fn wait(&self, key: Key, socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
        self.look();
        let mut inner = self.lock();
        let (links, link) = (inner.agent.links, inner.agent.link());
        let member = inner.member(key).ok_or(io::ErrorKind::NotFound)?;
        let Some(link) = link.filter(|_| member.refused != links) else {
            return self.wait_without(&mut inner, key, socket);
        };
        let slot = link.slots.get(key.slot).ok_or(io::ErrorKind::NotFound)?;
        if member.link != links {
            slot.begin(key.turn);
            drop(inner);
            let registered = link.register(socket, key.slot, key.turn);
            inner = self.lock();
            match registered {
                Ok(()) => self.registered(&mut inner, links, key, socket)?,
                Err(Refusal::Wrong(error)) => return Err(error),
                Err(Refusal::Unconnected) => return self.wait_without(&mut inner, key, socket),
                Err(Refusal::Cannot(why)) => {
                    let member = inner.member(key).ok_or(io::ErrorKind::NotFound)?;
                    (member.refused, member.why) = (links, why);
                    return self.wait_without(&mut inner, key, socket);
                }
            }
        }
        let member = inner.member(key).ok_or(io::ErrorKind::NotFound)?;
        let (at_least, level) = (member.at_least, member.level.take());
        if let Some(level) = level
            && level.is_ready(at_least)
            && level.events == slot.events.load(Ordering::Acquire)
        {
            member.given = Some(level);
            inner.disarm(key.slot);
            return Ok(Some(level.space));
        }
        slot.at_least.store(at_least, Ordering::Relaxed);
        // either the programs find this, or what they have published is seen here
        slot.armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let events = slot.events.load(Ordering::SeqCst);
        let level = level.map(|level| match level.events == events {
            true => level,
            false => Level::of(slot, events),
        });
        let (level, round_trip) = match level {
            Some(level) if level.is_ready(at_least) || level.allowed < at_least => {
                let rtt_us = slot.rtt_us.load(Ordering::Relaxed);
                (level, u64::from(rtt_us) * 1_000)
            }
            // what the device held back is freed without an event, so the kernel is asked before we sleep
            _ => {
                inner.stats.asked += 1;
                let info = Info::of(socket)?;
                (Level::asked(&info, events), info.round_trip())
            }
        };
        let member = inner.member(key).ok_or(io::ErrorKind::NotFound)?;
        if level.is_ready(at_least) {
            member.given = Some(level);
            inner.disarm(key.slot);
            return Ok(Some(level.space));
        }
        member.level = Some(level);
        inner.sleep(key, now() + patience(round_trip))?;
        Ok(None)
    }

    /// The agent rings for the socket: it is a wake-up that makes it writable.
    fn registered(
        &self,
        inner: &mut Inner,
        links: u32,
        key: Key,
        socket: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let member = inner.member(key).ok_or(io::ErrorKind::NotFound)?;
        (member.link, member.level, member.given) = (links, None, None);
        if let Some(before) = member.low_water.take() {
            not_sent_low_water(socket, before)?;
        }
        self.watch(inner, key, socket, EventFlags::OUT | EventFlags::ET)
    }

    /// epoll says so when the socket becomes writable.
    fn watch(
        &self,
        inner: &mut Inner,
        key: Key,
        socket: BorrowedFd<'_>,
        flags: EventFlags,
    ) -> io::Result<()> {
        let (fd, data) = (socket.as_raw_fd(), EventData::new_u64(key.slot.into()));
        let known = inner.watched.insert(fd, key.slot) == Some(key.slot);
        let watch = if known { epoll::modify } else { epoll::add };
        match watch(&self.epoll, socket, data, flags) {
            Err(Errno::EXIST) => epoll::modify(&self.epoll, socket, data, flags)?,
            Err(Errno::NOENT) => epoll::add(&self.epoll, socket, data, flags)?,
            other => other?,
        }
        if let Some(member) = inner.member(key) {
            member.watched = Some(fd);
        }
        Ok(())
    }

    /// So much was written of what [`Self::wait`] gave. Whoever says so spares the next `wait` a question
    /// to the kernel.
    pub fn wrote(&self, key: Key, bytes: usize) {
        let mut inner = self.lock();
        let slot = inner.agent.slot(key.slot);
        let events = slot.map(|slot| slot.events.load(Ordering::Acquire));
        let (Some(events), Some(member)) = (events, inner.member(key)) else {
            return;
        };
        // after an acknowledgment that came meanwhile it is not known whether the kernel knew of the bytes
        let given = member.given.take().filter(|given| given.events == events);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        member.level = given.map(|given| given.less(bytes));
    }

    /// Without the agent.
    fn wait_without(
        &self,
        inner: &mut Inner,
        key: Key,
        socket: BorrowedFd<'_>,
    ) -> io::Result<Option<u32>> {
        inner.stats.asked += 1;
        let info = Info::of(socket)?;
        let member = inner.member(key).ok_or(io::ErrorKind::NotFound)?;
        if info.unsent() == 0 || !info.is_sending() {
            member.waits = None;
            return Ok(Some(info.space(0).max(2 * info.segment())));
        }
        if member.low_water.is_none() {
            member.low_water = Some(low_water(socket)?);
            not_sent_low_water(socket, 1)?;
        }
        self.watch(inner, key, socket, EventFlags::OUT | EventFlags::ONESHOT)?;
        inner.sleep(key, now() + FALLBACK.max(patience(info.round_trip())))?;
        Ok(None)
    }

    /// The set's descriptor is readable now, as if it had something to say.
    pub(crate) fn nudge(&self) -> io::Result<()> {
        self.lock().timer.set(Some(0))
    }

    /// The sockets that should be asked about again: TCP can send, or is closed, or it is not known. Does
    /// not block.
    ///
    /// # Errors
    /// When the set's own descriptors fail.
    pub fn ready(&self, keys: &mut Vec<Key>) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        let none = Timespec::default();
        loop {
            events.clear();
            let take = || {
                let room = rustix::buffer::spare_capacity(&mut events);
                epoll::wait(&self.epoll, room, Some(&none))
            };
            retry_on_intr(take)?;
            let mut inner = self.lock();
            for event in &events {
                match event.data.u64() {
                    TIMER => inner.expired(keys)?,
                    AGENT => inner.lost_agent(&self.epoll, keys)?,
                    slot => inner.rung(slot as u32, keys),
                }
            }
            // whoever polls us for edges is told of no rest
            if events.len() < BATCH {
                return Ok(());
            }
        }
    }
}

impl Inner {
    fn member(&mut self, key: Key) -> Option<&mut Member> {
        let member = self.members.get_mut(key.slot as usize)?;
        (member.used && member.turn == key.turn).then_some(member)
    }

    fn sleep(&mut self, key: Key, until: u64) -> io::Result<()> {
        if let Some(member) = self.member(key) {
            member.waits = Some(until);
        }
        self.timer.add(until, key)
    }

    fn disarm(&mut self, slot: u32) {
        if let Some(member) = self.members.get_mut(slot as usize) {
            member.waits = None;
        }
        if let Some(slot) = self.agent.slot(slot) {
            slot.armed.store(0, Ordering::SeqCst);
            slot.rung_at.store(0, Ordering::Relaxed);
        }
    }

    /// A socket that waits need not any longer.
    fn wake(&mut self, slot: u32, keys: &mut Vec<Key>) {
        let Some(member) = self.members.get(slot as usize) else {
            return;
        };
        if member.used && member.waits.is_some() {
            let turn = member.turn;
            self.disarm(slot);
            keys.push(Key { slot, turn });
        }
    }

    fn wake_all(&mut self, keys: &mut Vec<Key>) {
        for slot in 1..self.members.len() as u32 {
            self.wake(slot, keys);
        }
    }

    /// A program has woken us for the socket, or the kernel has.
    fn rung(&mut self, slot: u32, keys: &mut Vec<Key>) {
        if let Some(slot) = self.agent.slot(slot) {
            let at = slot.rung_at.swap(0, Ordering::Relaxed);
            if at > 0 {
                let lag = now().saturating_sub(at);
                self.stats.heard(lag);
                let lag = u32::try_from(lag).unwrap_or(u32::MAX);
                slot.lag_ns.store(lag, Ordering::Relaxed);
            }
        }
        self.wake(slot, keys);
    }

    /// Nothing has rung for these: the kernel is asked.
    fn expired(&mut self, keys: &mut Vec<Key>) -> io::Result<()> {
        let (mut over, members) = (Vec::new(), &self.members);
        let waits = |at, key: Key| {
            let member = members.get(key.slot as usize);
            member.is_some_and(|m| m.turn == key.turn && m.waits == Some(at))
        };
        self.timer.expired(waits, &mut over)?;
        for key in over {
            self.members[key.slot as usize].level = None;
            if let Some(slot) = self.agent.slot(key.slot) {
                slot.fallbacks.fetch_add(1, Ordering::Relaxed);
            }
            self.wake(key.slot, keys);
        }
        Ok(())
    }

    /// Everybody falls back, until there is another.
    fn lost_agent(&mut self, epoll: &OwnedFd, keys: &mut Vec<Key>) -> io::Result<()> {
        // another thread may have found the next one meanwhile
        let Some(link) = self.agent.lose_dead()? else {
            return Ok(());
        };
        // it is closed anyway
        let _ = epoll::delete(epoll, &*link);
        self.wake_all(keys);
        Ok(())
    }
}

impl AsFd for Set {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Set {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
