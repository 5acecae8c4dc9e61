//! Places for streams: each holds a connection for as long as somebody listens, so how many there are is
//! bounded, in all and of one listener. The other connections are for requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Who listens now, by name.
#[derive(Debug)]
pub(super) struct Places {
    max: usize,
    of_one_max: usize,
    of: Mutex<BTreeMap<String, usize>>,
}

impl Places {
    pub(super) fn new(max: usize, of_one_max: usize) -> Places {
        Places {
            max,
            of_one_max,
            of: Mutex::default(),
        }
    }
}

/// The right to one stream, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    name: String,
}

impl Place {
    pub(super) fn take(places: &Arc<Places>, name: &str) -> Option<Place> {
        let mut of = places.of.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = of.values().sum();
        let of_this = of.get(name).copied().unwrap_or(0);
        if all >= places.max || of_this >= places.of_one_max {
            return None;
        }
        of.insert(name.to_owned(), of_this + 1);
        Some(Place {
            places: Arc::clone(places),
            name: name.to_owned(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of = self.places.of.lock().unwrap_or_else(PoisonError::into_inner);
        match of.get_mut(&self.name) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                of.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_of_one_and_come_back() {
        let places = Arc::new(Places::new(10, 8));
        let take = |name| Place::take(&places, name);
        let mut first: Vec<Option<Place>> = (0..8).map(|_| take("a")).collect();
        assert!(first.iter().all(Option::is_some));
        assert!(take("a").is_none(), "enough of one");
        let others = [take("b"), take("b")];
        assert!(
            others.iter().all(Option::is_some) && take("c").is_none(),
            "enough in all"
        );
        first.pop();
        assert!(take("c").is_some());
        drop((first, others));
        assert!(places.of.lock().unwrap().is_empty());
    }
}
