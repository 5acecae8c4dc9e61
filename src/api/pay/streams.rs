//! The news of one invoice as long as somebody looks at its page: sent at once, and whenever the page would
//! look another way. How many look is bounded, in all and of one invoice.

use super::view::{Read, View};
use super::words;
use crate::api::Api;
use crate::api::places::Place;
use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;

/// Windows that show one invoice.
pub(super) const OF_ONE_MAX: usize = 8;

/// From one look to the next at least, and at most, and so many quiet looks until a sign of life.
const BREATH: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_UNTIL_A_SIGN: u32 = 10;

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
