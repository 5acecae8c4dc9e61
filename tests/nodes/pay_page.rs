//! The payment page in a real browser, of the real daemon beside a real bitcoind: paid by the node's wallet
//! while it is open, read without JavaScript, and looked at on wide and narrow, light and dark screens.

use serde_json::{Value, json};

use crate::browser::{Browser, Screen};
use crate::common::api::{Client, fill_pool};
use crate::common::asks::D1;
use crate::common::invoices::now_ms;
use crate::common::wait::{PATIENCE, wait_until};
use crate::shop::{Shop, text};

const STRANGE: &str = "<script>document.title = 'owned'</script>";

const WIDE: Screen = Screen {
    width: 1280,
    height: 1000,
    is_dark: false,
};

fn open() -> (Shop, Client) {
    let shop = Shop::open_with(|setup| setup.api = "listen = \"127.0.0.1:0\"".to_owned());
    fill_pool(&shop.daemon, 10);
    let client = shop.daemon.client("shop", "all");
    (shop, client)
}

fn invoice(client: &Client, key: &str, reference: &str) -> Value {
    let body = json!({"asset": "BTC", "amount": "0.29", "reference": reference}).to_string();
    client.post("/v1/invoices", key, &body).expect(201)
}

fn page(client: &Client, token: &str) -> String {
    format!("http://127.0.0.1:{}/i/{token}", client.port)
}

/// The text of the QR code in a picture.
#[track_caller]
fn read_code(picture: &[u8]) -> String {
    let mut reader = png::Decoder::new(std::io::Cursor::new(picture))
        .read_info()
        .unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let (width, height) = (info.width as usize, info.height as usize);
    let step = info.line_size / width;
    // The green of a pixel does for its brightness.
    let dot = |x: usize, y: usize| bytes[y * info.line_size + x * step + 1];
    let mut image = rqrr::PreparedImage::prepare_from_greyscale(width, height, dot);
    let grids = image.detect_grids();
    assert_eq!(grids.len(), 1, "one code in the picture");
    grids[0].decode().unwrap().1
}

#[test]
fn a_page_that_is_open_shows_the_payment_seen_and_then_paid() {
    let (shop, client) = open();
    let invoice = invoice(&client, "k", STRANGE);
    let (address, url) = (text(&invoice["address"]), page(&client, &text(&invoice["token"])));
    let mut browser = Browser::start();
    browser.set_screen(WIDE);
    browser.open(&url);
    browser.wait_text("Waiting for payment");
    let seen = browser.text();
    assert!(
        seen.contains("0.29 BTC") && seen.contains(&address) && seen.contains(STRANGE),
        "{seen}"
    );
    browser.wait_text(" left)");
    assert_eq!(browser.eval("document.title"), "Pay 0.29 BTC");
    let uri = text(&invoice["payment_uri"]);
    assert_eq!(read_code(&browser.picture()), uri);
    assert_eq!(browser.eval("document.querySelector('a.open').href"), json!(uri));
    let marked = "document.querySelector('[data-copy]').click(), window.mark = 1";
    browser.eval(marked);
    shop.node.send(&address, 29_000_000);
    browser.wait_text("Payment seen");
    browser.wait_text("0 of 3");
    shop.node.mine(1);
    browser.wait_text("1 of 3");
    shop.node.mine(2);
    browser.wait_text("Thank you.");
    assert_eq!(browser.eval("document.title"), "0.29 BTC: paid");
    assert_eq!(
        browser.eval("document.querySelector('svg')"),
        Value::Null,
        "nobody pays twice"
    );
    assert_eq!(browser.eval("window.mark"), 1, "it was never loaded again");
    assert_eq!(browser.complaints, Vec::<String>::new());
    let own = [url.clone(), format!("{url}/events")];
    let strange = browser
        .requested
        .iter()
        .filter(|asked| !own.contains(asked) && *asked != "data:,");
    assert_eq!(
        strange.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "nothing else is asked for"
    );
    shop.assert_sound();
}

#[test]
fn a_page_without_scripts_shows_the_essentials() {
    let (shop, client) = open();
    let invoice = invoice(&client, "k", "order 7");
    let (address, url) = (text(&invoice["address"]), page(&client, &text(&invoice["token"])));
    let mut browser = Browser::start();
    browser.set_screen(WIDE);
    browser.set_scripts(false);
    browser.open(&url);
    let seen = browser.text();
    let expiry = text(&invoice["expires_at"]).replace('T', " ");
    for part in [
        "0.29 BTC",
        "order 7",
        &address,
        "Waiting for payment",
        &expiry[..19],
        "Load it now",
    ] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    assert!(
        !seen.contains("Copy") && !seen.contains("connection"),
        "nothing that cannot work: {seen}"
    );
    assert_eq!(read_code(&browser.picture()), text(&invoice["payment_uri"]));
    let refresh = "document.querySelector('noscript meta[http-equiv=refresh]').content";
    assert_eq!(browser.eval(refresh), "20");
    let txid = shop.node.send(&address, 10_000_000);
    shop.await_state(&txid, "seen");
    let again = browser.eval("document.querySelector('noscript a').href");
    assert_eq!(again, json!(url));
    browser.eval("document.querySelector('noscript a').click()");
    browser.wait_text("0.19 BTC is still missing");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The least contrast between text and what is behind it, of all elements with text of their own, with the
/// text.
const CONTRAST: &str = "(() => {
  const parse = color => color.match(/[0-9.]+/g).map(Number);
  const light = color => {
    const [r, g, b] = parse(color).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (parse(color).length < 4) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  let least = [21, ''];
  for (const element of document.querySelectorAll('main *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, element.textContent];
  }
  return least;
})()";

/// Pages in every state that a payer meets, with the name of each.
fn standings(shop: &Shop, client: &Client) -> Vec<(&'static str, String)> {
    let made = |key: &str| {
        invoice(
            client,
            key,
            "order 7, two coffees and a very-long-word-without-any-break-in-it",
        )
    };
    let [waiting, partial, seen, paid, cancelled] =
        ["waiting", "partial", "seen", "paid", "cancelled"].map(made);
    let pay = |invoice: &Value, sat| shop.node.send(&text(&invoice["address"]), sat);
    pay(&paid, 29_000_000);
    shop.node.mine(3);
    pay(&partial, 10_000_000);
    pay(&seen, 29_000_000);
    let cancel = format!("/v1/invoices/{}/cancel", text(&cancelled["id"]));
    client.post(&cancel, "cancel", "{}").expect(200);
    shop.watch_for("shop", D1);
    shop.daemon
        .try_invoice_at(D1, "BTC", "0.02", now_ms() - 60_000, 50_000)
        .unwrap();
    let expired = page(client, &format!("page of {D1} in BTC").replace(' ', "%20"));
    let made = [
        ("waiting", waiting),
        ("partial", partial),
        ("seen", seen),
        ("paid", paid),
        ("cancelled", cancelled),
    ];
    let pages = made.map(|(name, invoice)| (name, page(client, &text(&invoice["token"]))));
    pages.into_iter().chain([("expired", expired)]).collect()
}

/// Opens a page on every kind of screen: it must fit, and every text must be seen against what is behind it.
/// Pictures go to target/tmp/pages, for people to look at.
fn look(browser: &mut Browser, name: &str, url: &str) {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    for (screen, width, is_dark) in [
        ("wide", 1280, false),
        ("wide-dark", 1280, true),
        ("narrow", 320, false),
        ("narrow-dark", 320, true),
    ] {
        let what = format!("{name}-{screen}");
        let height = 1_300;
        browser.set_screen(Screen {
            width,
            height,
            is_dark,
        });
        browser.open(url);
        wait_until(&what, PATIENCE, || {
            let standing = browser.eval("document.body.dataset.standing");
            (standing.is_null() || standing == name).then_some(())
        });
        std::fs::write(folder.join(format!("{what}.png")), browser.picture()).unwrap();
        let wide = browser
            .eval("document.documentElement.scrollWidth")
            .as_u64()
            .unwrap();
        assert!(wide <= u64::from(width), "{what}: {wide} pixels wide");
        let least = browser.eval(CONTRAST);
        assert!(least[0].as_f64().unwrap() >= 4.5, "{what}: {least}");
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn pages_fit_narrow_screens_and_can_be_read_in_the_dark() {
    let (shop, client) = open();
    let mut browser = Browser::start();
    for (standing, url) in standings(&shop, &client) {
        look(&mut browser, standing, &url);
    }
    let docs = format!("http://127.0.0.1:{}/docs", client.port);
    look(&mut browser, "docs", &docs);
    assert!(browser.text().contains("/v1/invoices/{id}/cancel"));
}
