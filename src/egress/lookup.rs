//! One look at where a callback's name leads, for whoever adds it: a hint in good time. What counts is the
//! check at every dial, because a name may mean something else by then.

use super::callback::{Reach, check_addresses};
use super::{CallbackUrl, Policy, UrlError};
use crate::clock::Clock;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Only to addresses that callbacks go to.
    Allowed,
    /// To one that they do not go to.
    Refused(UrlError),
    /// Nowhere, as far as this machine knows now.
    Unresolved(String),
}

/// Asks the machine's resolver.
pub fn look_up(url: &CallbackUrl, policy: &Policy) -> Lookup {
    let (tell, told) = mpsc::channel();
    ask(url, move |found| {
        let _ = tell.send(found);
    });
    judged(told.recv_timeout(PATIENCE).ok(), url, policy)
}

/// The same without holding up the caller's thread.
pub async fn look_up_soon(url: &CallbackUrl, policy: &Policy, clock: Clock) -> Lookup {
    let (tell, told) = oneshot::channel();
    ask(url, move |found| {
        let _ = tell.send(found);
    });
    let told = tokio::select! { biased;
        told = told => told.ok(),
        () = clock.sleep(PATIENCE) => None,
    };
    judged(told, url, policy)
}

type Found = std::io::Result<Vec<IpAddr>>;

/// A resolver that hangs is left behind.
fn ask(url: &CallbackUrl, tell: impl FnOnce(Found) + Send + 'static) {
    let name = url.host().trim_matches(['[', ']']).to_owned();
    // An address leads to itself: nobody need be asked.
    if let Ok(address) = name.parse() {
        return tell(Ok(vec![address]));
    }
    std::thread::spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        tell(found.map(|found| found.map(|address| address.ip()).collect()));
    });
}

fn judged(found: Option<Found>, url: &CallbackUrl, policy: &Policy) -> Lookup {
    match found {
        Some(Ok(addresses)) if addresses.is_empty() => Lookup::Unresolved("it has no address".to_owned()),
        Some(Ok(addresses)) => judge(&addresses, url.is_https(), policy),
        Some(Err(error)) => Lookup::Unresolved(error.to_string()),
        None => Lookup::Unresolved(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

fn judge(addresses: &[IpAddr], is_https: bool, policy: &Policy) -> Lookup {
    let reach = match is_https {
        true => Reach::Allowed,
        false => Reach::ListedOnly,
    };
    match check_addresses(addresses, policy, reach) {
        Ok(()) => Lookup::Allowed,
        Err(blocked) => Lookup::Refused(UrlError::Blocked {
            address: blocked.address,
            why: blocked.why,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Range;

    #[test]
    fn http_to_a_name_with_any_address_outside_of_the_ranges_is_refused() {
        let policy = Policy::new(vec![Range::parse("127.0.0.0/8").unwrap()]);
        let cases: [(&[&str], bool, bool); 6] = [
            (&["127.0.0.1"], false, true),
            (&["93.184.215.14"], false, false),
            (&["127.0.0.1", "93.184.215.14"], false, false),
            (&["93.184.215.14"], true, true),
            (&["10.0.0.1"], true, false),
            (&["93.184.215.14", "10.0.0.1"], true, false),
        ];
        for (texts, is_https, is_allowed) in cases {
            let addresses: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let found = judge(&addresses, is_https, &policy);
            assert_eq!(
                found == Lookup::Allowed,
                is_allowed,
                "{texts:?} {is_https}: {found:?}"
            );
        }
    }

    /// No thread of the machine's own time has a part in it: a test and a simulator see the same each time.
    #[tokio::test(start_paused = true)]
    async fn an_address_is_looked_up_in_no_time() {
        let policy = Policy::new(vec![Range::parse("127.0.0.0/8").unwrap()]);
        for url in ["https://93.184.215.14/hook", "https://[2606:2800:21f::1]/hook"] {
            let url = crate::egress::check_url(url, &policy).unwrap();
            let clock = Clock::simulated(0);
            let looked_up = tokio::select! { biased;
                looked_up = look_up_soon(&url, &policy, clock) => Some(looked_up),
                () = std::future::ready(()) => None,
            };
            assert_eq!(looked_up, Some(Lookup::Allowed), "{url:?}");
        }
    }

    #[test]
    fn name_that_cannot_exist_does_not_resolve() {
        let policy = Policy::default();
        let url = crate::egress::check_url("https://nosuch.invalid/hook", &policy).unwrap();
        assert!(matches!(look_up(&url, &policy), Lookup::Unresolved(_)));
    }
}
