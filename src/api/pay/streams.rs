//! The news of one invoice as long as somebody looks at its page: sent at once, and whenever the page would
//! look another way. How many look is bounded, in all and of one invoice.

use super::view::{Read, View};
use super::words;
use crate::api::Api;
use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Windows that show one invoice.
const OF_ONE_MAX: usize = 8;

/// From one look to the next at least, and at most, and so many quiet looks until a sign of life.
const BREATH: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_UNTIL_A_SIGN: u32 = 10;

/// Who looks now, by token.
#[derive(Debug)]
pub(super) struct Streams {
    max: usize,
    of: Mutex<BTreeMap<String, usize>>,
}

impl Streams {
    pub(super) fn new(max: usize) -> Streams {
        Streams {
            max,
            of: Mutex::default(),
        }
    }
}

/// The right to one stream, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    streams: Arc<Streams>,
    token: String,
}

impl Place {
    pub(super) fn take(streams: &Arc<Streams>, token: &str) -> Option<Place> {
        let mut of = streams.of.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = of.values().sum();
        let of_this = of.get(token).copied().unwrap_or(0);
        if all >= streams.max || of_this >= OF_ONE_MAX {
            return None;
        }
        of.insert(token.to_owned(), of_this + 1);
        Some(Place {
            streams: Arc::clone(streams),
            token: token.to_owned(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of = self.streams.of.lock().unwrap_or_else(PoisonError::into_inner);
        match of.get_mut(&self.token) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                of.remove(&self.token);
            }
        }
    }
}

/// What the script of the page is told.
#[derive(Serialize)]
struct NewsJson<'a> {
    standing: &'a str,
    left_ms: i64,
    title: String,
    state: String,
    pay: String,
}

/// The stream of one window.
pub(super) struct Watcher {
    api: Api,
    token: String,
    woken: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
    shown: Option<View>,
    quiet_looks: u32,
    _place: Place,
}

impl Watcher {
    pub(super) fn new(api: Api, token: String, place: Place) -> Watcher {
        Watcher {
            woken: api.0.store.woken(),
            ending: api.0.ending.subscribe(),
            shown: None,
            quiet_looks: 0,
            _place: place,
            token,
            api,
        }
    }

    pub(super) fn news(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, Watcher::next)
    }

    /// The next news, or a sign of life; `None` ends the stream: at a stop, and when the database does not
    /// answer. The window comes again by itself.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Watcher)> {
        loop {
            if *self.ending.borrow() {
                return None;
            }
            self.woken.mark_unchanged();
            let view = self.look().await?;
            if self.shown.as_ref() != Some(&view) {
                let event = self.event(&view);
                self.shown = Some(view);
                self.quiet_looks = 0;
                return Some((Ok(event), self));
            }
            if self.quiet_looks == LOOKS_UNTIL_A_SIGN {
                self.quiet_looks = 0;
                return Some((Ok(Event::default().comment("")), self));
            }
            self.quiet_looks += 1;
            self.rest().await;
        }
    }

    async fn look(&self) -> Option<View> {
        let (parts, token) = (&self.api.0, self.token.clone());
        let read = parts
            .store
            .read(move |tx| Read::by_token(tx, &token))
            .await
            .ok()??;
        Some(View::new(&parts.config, read, parts.clock.now_ms()))
    }

    fn event(&self, view: &View) -> Event {
        let news = NewsJson {
            standing: view.standing.word(),
            left_ms: view.left_ms(self.api.0.clock.now_ms()),
            title: words::title(view),
            state: words::state(view),
            pay: words::pay(view),
        };
        let data = serde_json::to_string(&news).unwrap_or_default();
        Event::default().event("standing").data(data)
    }

    /// A pause, for many commits in a row make no page fresher than one, and then until something happens.
    async fn rest(&mut self) {
        let clock = self.api.0.clock;
        tokio::select! { biased;
            _ = self.ending.changed() => {}
            () = clock.sleep(BREATH) => {}
        }
        tokio::select! { biased;
            _ = self.ending.wait_for(|is_ending| *is_ending) => {}
            _ = self.woken.changed() => {}
            () = clock.sleep(LOOK) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_of_one_invoice_and_come_back() {
        let streams = Arc::new(Streams::new(10));
        let take = |token| Place::take(&streams, token);
        let mut first: Vec<Option<Place>> = (0..OF_ONE_MAX).map(|_| take("a")).collect();
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
        assert!(streams.of.lock().unwrap().is_empty());
    }
}
