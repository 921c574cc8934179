//! A thread's own table of seats: small, so that many fit the caches.
//!
//! Places come in groups of eight. A group has a word of marks, a byte of the key for every place that is taken; one
//! comparison of words tells which places to look at. All marks of a hundred thousand seats fit a cache of the second level, and
//! the one place that is looked at is half a line, so a hit waits for distant memory once. At most seven
//! places in eight are taken: fewer would be quicker to search, and further apart.
//!
//! A place keeps one half of its key. The other half leads to the group and makes the mark, so with a hundred thousand
//! keys some 86 bits must agree before one is taken for another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::seat::Seat;
use crate::key::Key;

/// Places in a group.
const GROUP: usize = 8;
/// Groups of the smallest table.
const FEWEST: usize = 8;
/// Seats that wait for a table in use, at most.
const ASIDE: usize = 64;
/// One in every byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Half a cache line, and never a part of two.
#[derive(Debug)]
#[repr(align(32))]
struct Place {
    half: u64,
    seat: Seat,
}

const _: () = assert!(size_of::<Option<Place>>() == 32);

/// A thread's seats at the cases of one engine.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) engine: u64,
    pub(super) generation: u64,
    /// Zero where a place is free.
    marks: Vec<u64>,
    places: Vec<Option<Place>>,
    filled: usize,
    /// Seats that were taken while the table was in use, until they find a place in it.
    aside: RefCell<Vec<(Key, Rc<Seat>)>>,
    /// Whether there are any.
    awaited: Cell<bool>,
}

/// Bit 7 of every byte that is zero; above the lowest of them, perhaps of one that is not.
#[inline]
fn zeros(bytes: u64) -> u64 {
    bytes.wrapping_sub(ONES) & !bytes & (ONES << 7)
}

impl Table {
    /// An empty one; zero is no engine.
    pub(super) const fn of(engine: u64, generation: u64) -> Self {
        Self {
            engine,
            generation,
            marks: Vec::new(),
            places: Vec::new(),
            filled: 0,
            aside: RefCell::new(Vec::new()),
            awaited: Cell::new(false),
        }
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&Seat> {
        let mask = self.marks.len().wrapping_sub(1);
        let mut group = key.place(mask);
        let mark = u64::from(key.mark()) * ONES;
        loop {
            let marks = *self.marks.get(group)?;
            let mut same = zeros(marks ^ mark);
            while same != 0 {
                let place = group * GROUP + same.trailing_zeros() as usize / 8;
                if let Some(Some(place)) = self.places.get(place)
                    && place.half == key.half()
                {
                    return Some(&place.seat);
                }
                same &= same - 1;
            }
            if zeros(marks) != 0 {
                return None;
            }
            group = (group + 1) & mask;
        }
    }

    pub(super) fn insert(&mut self, key: Key, seat: Seat) {
        if GROUP * (self.filled + 1) > (GROUP - 1) * self.places.len() {
            let groups = (2 * self.marks.len()).max(FEWEST);
            let old = std::mem::take(&mut self.places);
            self.marks = vec![0; groups];
            self.places.resize_with(groups * GROUP, || None);
            for place in old.into_iter().flatten() {
                // Only here the whole key is needed again.
                self.put(place.seat.case.key, place.seat);
            }
        }
        self.put(key, seat);
        self.filled += 1;
    }

    fn put(&mut self, key: Key, seat: Seat) {
        let mask = self.marks.len() - 1;
        let mut group = key.place(mask);
        while zeros(self.marks[group]) == 0 {
            group = (group + 1) & mask;
        }
        let free = zeros(self.marks[group]).trailing_zeros() as usize / 8;
        self.marks[group] |= u64::from(key.mark()) << (8 * free);
        self.places[group * GROUP + free] = Some(Place {
            half: key.half(),
            seat,
        });
    }

    pub(super) fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.places.iter().flatten().map(|place| &place.seat)
    }

    /// Whether seats wait for a place.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.get()
    }

    /// A seat that waits.
    pub(super) fn aside(&self, key: Key) -> Option<Rc<Seat>> {
        let aside = self.aside.borrow();
        let (_, seat) = aside.iter().find(|(known, _)| *known == key)?;
        Some(Rc::clone(seat))
    }

    /// Keeps a seat until nobody is at the table, unless too many wait.
    pub(super) fn put_aside(&self, key: Key, seat: Rc<Seat>) {
        let mut aside = self.aside.borrow_mut();
        if aside.len() < ASIDE {
            aside.push((key, seat));
            self.awaited.set(true);
        }
    }

    /// Those that waited.
    pub(super) fn take_aside(&mut self) -> Vec<(Key, Rc<Seat>)> {
        self.awaited.set(false);
        self.aside.take()
    }
}
