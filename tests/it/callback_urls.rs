//! C39, first half: which URLs are refused when they are registered, by their text alone.

use creditd::egress::{Policy, Range, Verdict, check_url};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn policy(ranges: &[&str]) -> Policy {
    Policy::new(ranges.iter().map(|range| Range::parse(range).unwrap()).collect())
}

/// `ok`, or the code of the refusal.
fn code(url: &str, policy: &Policy) -> &'static str {
    check_url(url, policy).map_or_else(|error| error.code(), |_| "ok")
}

#[track_caller]
fn assert_codes(cases: &[(&str, &str)], policy: &Policy) {
    for (url, expected) in cases {
        assert_eq!(code(url, policy), *expected, "{url}");
    }
}

#[test]
fn callbacks_go_to_public_hosts_over_https() {
    let cases = [
        ("https://shop.example/hook", "ok"),
        ("https://shop.example:8443/hook?key=1", "ok"),
        ("HTTPS://Shop.Example/hook", "ok"),
        ("https://b\u{fc}cher.example/", "ok"),
        ("https://xn--bcher-kva.example/", "ok"),
        ("https://8.8.8.8/", "ok"),
        ("https://[2606:4700::1111]/", "ok"),
    ];
    assert_codes(&cases, &Policy::default());
}

#[test]
fn c39_urls_are_refused_by_their_text() {
    let cases = [
        ("http://169.254.169.254/", "blocked_address"),
        ("http://[::ffff:127.0.0.1]/", "url_host"),
        ("http://2130706433/", "url_host"),
        ("http://0x7f.1/", "url_host"),
        ("http://user:pw@example.test/", "url_user_info"),
        ("ftp://shop.example/", "url_scheme"),
        ("http://localhost:18443/", "blocked_address"),
    ];
    assert_codes(&cases, &Policy::default());
}

#[test]
fn other_schemes_and_what_only_looks_like_a_url_are_refused() {
    let cases = [
        ("http://shop.example/", "url_plain_http"),
        ("http://8.8.8.8/", "url_plain_http"),
        ("file:///etc/passwd", "url_scheme"),
        ("gopher://127.0.0.1:6379/_FLUSHALL", "url_scheme"),
        ("javascript:alert(1)", "url_scheme"),
        ("unix:/run/docker.sock", "url_scheme"),
        ("shop.example", "url_form"),
        ("//shop.example/", "url_form"),
        ("https:shop.example", "url_form"),
        ("https:/shop.example", "url_form"),
        ("https:///shop.example/", "url_form"),
        ("https://", "url_form"),
        ("https://:443/", "url_form"),
        ("", "url_form"),
    ];
    assert_codes(&cases, &Policy::default());
}

#[test]
fn letters_that_some_readers_drop_are_refused() {
    let cases = [
        (" https://shop.example/", "url_characters"),
        ("https://shop.example/\r\nX-Admin: 1", "url_characters"),
        ("https://shop\t.example/", "url_characters"),
        ("https:\\\\shop.example\\", "url_characters"),
        ("https://shop.example\\@10.0.0.1/", "url_characters"),
        ("https://shop.example/\u{0}", "url_characters"),
    ];
    assert_codes(&cases, &Policy::default());
}

#[test]
fn user_names_fragments_and_odd_ports_are_refused() {
    let cases = [
        ("https://shop.example@10.0.0.1/", "url_user_info"),
        ("https://@shop.example/", "url_user_info"),
        ("https://10.0.0.1#@shop.example/", "url_fragment"),
        ("https://shop.example/#", "url_fragment"),
        ("https://shop.example:0/", "url_port"),
        ("https://shop.example:00/", "url_port"),
        ("https://shop.example:/", "url_port"),
        ("https://shop.example:65536/", "url_port"),
        ("https://shop.example:+443/", "url_port"),
        ("https://shop.example:443:443/", "url_port"),
        ("https://[2606:4700::1111]443/", "url_port"),
    ];
    assert_codes(&cases, &Policy::default());
}

#[test]
fn loopback_is_refused_in_every_spelling() {
    let cases = [
        ("https://127.0.0.1/", "blocked_address"),
        ("https://127.1/", "url_host"),
        ("https://0177.0.0.1/", "url_host"),
        ("https://0x7f000001/", "url_host"),
        ("https://017700000001/", "url_host"),
        ("https://127.0.0.1./", "url_host"),
        ("https://127.0.0.01/", "url_host"),
        ("https://%31%32%37.0.0.1/", "url_host"),
        ("https://\u{ff11}\u{ff12}\u{ff17}.0.0.1/", "url_host"),
        ("https://127\u{3002}0\u{3002}0\u{3002}1/", "url_host"),
        ("https://\u{2460}27.0.0.1/", "url_host"),
        ("https://[::1]/", "blocked_address"),
        ("https://[0:0:0:0:0:0:0:1]/", "url_host"),
        ("https://[::127.0.0.1]/", "url_host"),
        ("https://[::7f00:1]/", "blocked_address"),
        ("https://[::ffff:7f00:1]/", "blocked_address"),
        ("https://[64:ff9b::7f00:1]/", "blocked_address"),
        ("https://[64:ff9b:1::7f00:1]/", "blocked_address"),
        ("https://[2002:7f00:1::]/", "blocked_address"),
        ("https://[2001:0:7f00:1::]/", "blocked_address"),
        ("https://[::]/", "blocked_address"),
        ("https://0.0.0.0/", "blocked_address"),
        ("https://0/", "url_host"),
        ("https://localhost/", "blocked_address"),
        ("https://LOCALHOST/", "blocked_address"),
        ("https://db.localhost/", "blocked_address"),
        ("https://localhost./", "url_host"),
        ("https://\u{ff4c}ocalhost/", "blocked_address"),
        ("https://loc%61lhost/", "url_host"),
    ];
    assert_codes(&cases, &Policy::default());
}

#[test]
fn the_inside_is_refused() {
    let cases = [
        ("https://10.0.0.1/", "blocked_address"),
        ("https://172.16.0.1/", "blocked_address"),
        ("https://172.31.255.255/", "blocked_address"),
        ("https://172.32.0.1/", "ok"),
        ("https://192.168.1.1/", "blocked_address"),
        ("https://100.64.0.1/", "blocked_address"),
        ("https://100.100.100.200/", "blocked_address"),
        ("https://168.63.129.16/", "blocked_address"),
        ("https://198.18.0.1/", "blocked_address"),
        ("https://192.0.2.1/", "blocked_address"),
        ("https://224.0.0.1/", "blocked_address"),
        ("https://255.255.255.255/", "blocked_address"),
        ("https://[fe80::1]/", "blocked_address"),
        ("https://[fe80::1%25eth0]/", "url_host"),
        ("https://[fd00:ec2::254]/", "blocked_address"),
        ("https://[fec0::1]/", "blocked_address"),
        ("https://[ff02::1]/", "blocked_address"),
        ("https://[2001:db8::1]/", "blocked_address"),
        ("https://[4000::1]/", "blocked_address"),
        ("https://bitcoind/", "url_inside_name"),
        ("https://node.internal/", "url_inside_name"),
        ("https://printer.local/", "url_inside_name"),
        ("https://router.home.arpa/", "url_inside_name"),
    ];
    assert_codes(&cases, &Policy::default());
}

#[test]
fn names_that_are_not_plain_are_refused() {
    let cases = [
        ("https://-shop.example/", "url_host"),
        ("https://shop..example/", "url_host"),
        ("https://shop.example./", "url_host"),
        ("https://sh!op.example/", "url_host"),
        ("https://[v1.x]/", "url_host"),
        ("https://[::1/", "url_host"),
        ("https://1.2.3.4.5/", "url_host"),
        ("https://shop.0x1/", "url_host"),
    ];
    assert_codes(&cases, &Policy::default());
    let long = format!("https://shop.example/{}", "x".repeat(2048));
    assert_codes(&[(long.as_str(), "url_too_long")], &Policy::default());
}

#[test]
fn listed_ranges_open_themselves_and_nothing_else() {
    let policy = policy(&["10.1.0.0/16", "fd00:1::/32"]);
    let cases = [
        ("http://10.1.2.3:8080/hook", "ok"),
        ("https://10.1.2.3/", "ok"),
        ("http://[fd00:1::5]/", "ok"),
        ("http://bitcoind:8080/", "ok"),
        ("http://shop.example/", "ok"),
        ("http://10.2.0.1/", "blocked_address"),
        ("https://10.2.0.1/", "blocked_address"),
        ("http://[fd00:2::5]/", "blocked_address"),
        ("http://[::ffff:a01:203]/", "blocked_address"),
        ("http://[64:ff9b::a01:203]/", "blocked_address"),
        ("http://8.8.8.8/", "url_plain_http"),
        ("http://localhost/", "blocked_address"),
        ("http://169.254.169.254/", "blocked_address"),
        ("http://167837187/", "url_host"),
    ];
    assert_codes(&cases, &policy);
    let local = self::policy(&["127.0.0.0/8"]);
    assert_eq!(code("http://localhost:8080/", &local), "ok");
    assert_eq!(code("http://127.0.0.1:8080/", &local), "ok");
}

#[test]
fn names_of_metadata_services_are_refused_whatever_is_listed() {
    let policies = [Policy::default(), policy(&["10.0.0.0/8", "fd00::/8"])];
    for host in [
        "metadata",
        "METADATA.google.internal",
        "x.metadata.google.internal",
        "metadata.goog",
        "metadata.azure.internal",
        "instance-data",
        "instance-data.ec2.internal",
    ] {
        for policy in &policies {
            for scheme in ["https", "http"] {
                let url = format!("{scheme}://{host}/latest/");
                assert_eq!(code(&url, policy), "url_metadata_name", "{url}");
            }
        }
    }
    assert_eq!(code("https://metadata.shop.example/", &policies[0]), "ok");
    assert_eq!(code("https://mymetadata.goog/", &policies[0]), "ok");
}

#[test]
fn metadata_services_stay_closed_inside_listed_ranges() {
    let policy = policy(&["100.64.0.0/10", "fc00::/7", "168.63.0.0/16", "192.0.0.0/24"]);
    for address in [
        "100.100.100.200",
        "fd00:ec2::254",
        "fd20:ce::254",
        "168.63.129.16",
        "192.0.0.192",
    ] {
        let verdict = policy.judge(address.parse().unwrap());
        assert!(matches!(verdict, Verdict::Denied(_)), "{address}: {verdict:?}");
    }
    for address in ["100.100.100.201", "fd00:ec2::255", "168.63.129.17"] {
        assert_eq!(
            policy.judge(address.parse().unwrap()),
            Verdict::Listed,
            "{address}"
        );
    }
}

#[test]
fn a_url_is_kept_in_one_spelling() {
    let kept = |url: &str| check_url(url, &Policy::default()).unwrap().to_string();
    assert_eq!(
        kept("HTTPS://B\u{dc}CHER.example:443/a%20b"),
        "https://xn--bcher-kva.example/a%20b"
    );
    assert_eq!(kept("https://shop.example"), "https://shop.example/");
}

/// The first address behind each range of IANA's registries and the last one in it, written down once more
/// and in another form than in the code.
const DENIED_V4: [(&str, &str); 15] = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "255.255.255.255"),
];

fn number(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

fn is_denied_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    DENIED_V4
        .iter()
        .any(|(first, last)| (number(first)..=number(last)).contains(&bits))
}

fn denied_v4() -> impl Strategy<Value = Ipv4Addr> {
    let range = prop::sample::select(DENIED_V4.to_vec());
    range.prop_flat_map(|(first, last)| (number(first)..=number(last)).prop_map(Ipv4Addr::from_bits))
}

/// All the ways to write an IPv4 address that some reader of URLs takes.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let (whole, tail) = (address.to_bits(), address.to_bits() & 0xff_ffff);
    let v6 = |net: &str| format!("[{net}{:x}:{:x}]", whole >> 16, whole & 0xffff);
    let mut all = vec![
        format!("{address}"),
        format!("{address}."),
        format!("{whole}"),
        format!("{whole:#x}"),
        format!("{whole:#X}"),
        format!("0{whole:o}"),
        format!("{a}.{tail}"),
        format!("{a}.{b}.{}", tail & 0xffff),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:04}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d:#x}"),
        format!(
            "%{:02x}{}",
            address.to_string().as_bytes()[0],
            &address.to_string()[1..]
        ),
        format!("[::ffff:{address}]"),
        format!("[::{address}]"),
        format!("[64:ff9b::{address}]"),
        format!("[2002:{:x}:{:x}::]", whole >> 16, whole & 0xffff),
    ];
    all.extend(["::ffff:", "::", "64:ff9b::", "64:ff9b:1::", "::ffff:0:", "fe80::"].map(v6));
    let digits: String = address
        .to_string()
        .chars()
        .map(|c| {
            c.to_digit(10)
                .map_or(c, |digit| char::from_u32(0xff10 + digit).unwrap())
        })
        .collect();
    all.push(digits);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_spelling_of_a_denied_address_is_accepted(address in denied_v4()) {
        for host in spellings(address) {
            for scheme in ["https", "http"] {
                let url = format!("{scheme}://{host}/");
                prop_assert_ne!(code(&url, &Policy::default()), "ok", "{}", url);
            }
        }
    }

    #[test]
    fn ipv4_is_judged_as_the_registry_says(bits in any::<u32>(), denied in denied_v4()) {
        for address in [Ipv4Addr::from_bits(bits), denied] {
            let is_denied = is_denied_v4(address);
            let judge = |address: IpAddr| matches!(Policy::default().judge(address), Verdict::Denied(_));
            prop_assert_eq!(judge(address.into()), is_denied, "{}", address);
            // The only IPv6 address that stands for an IPv4 one and may be called.
            let [a, b, c, d] = address.octets().map(u16::from);
            let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d);
            prop_assert_eq!(judge(nat64.into()), is_denied, "{}", nat64);
            prop_assert!(judge(address.to_ipv6_mapped().into()));
        }
    }

    #[test]
    fn ipv6_outside_of_global_unicast_is_denied(bits in any::<u128>()) {
        let address = Ipv6Addr::from_bits(bits);
        let verdict = Policy::default().judge(address.into());
        if bits >> 125 != 1 && bits >> 32 != 0x64_ff9b_u128 << 64 {
            prop_assert!(matches!(verdict, Verdict::Denied(_)), "{}: {:?}", address, verdict);
        }
    }

    #[test]
    fn link_local_is_denied_whatever_is_listed(low in any::<u16>(), rest in any::<u64>()) {
        let all = policy(&[
            "1.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "168.0.0.0/8", "170.0.0.0/8", "172.0.0.0/8",
            "192.0.0.0/8", "fc00::/7", "::1/128", "2400::/8",
        ]);
        let [high, low] = low.to_be_bytes();
        let v4 = Ipv4Addr::new(169, 254, high, low);
        let v6 = Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(rest));
        for address in [IpAddr::from(v4), IpAddr::from(v6), IpAddr::from(v4.to_ipv6_mapped())] {
            prop_assert!(matches!(all.judge(address), Verdict::Denied(_)), "{}", address);
        }
    }
}
