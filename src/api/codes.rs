//! The codes of problems, for the page of the API. Programs go by them: one that is here stays what it means.

/// A code, the status that it comes with, and what to make of it.
pub(super) const CODES: &[(&str, u16, &str)] = &[
    (
        "malformed_json",
        400,
        "The body is not one JSON value, or names a field twice.",
    ),
    ("json_too_deep", 400, "The body is nested too deep."),
    (
        "number_not_exact",
        400,
        "A number of the body would be rounded: write it as a text.",
    ),
    (
        "body_incomplete",
        400,
        "The connection ended before the body did.",
    ),
    (
        "invalid_query",
        400,
        "A parameter of the query is not known, or not of its form: `field` names it.",
    ),
    (
        "idempotency_key_missing",
        400,
        "Send an `Idempotency-Key` of your own.",
    ),
    (
        "idempotency_key_invalid",
        400,
        "Send one key of 1 to 256 visible ASCII characters, bare or quoted.",
    ),
    ("invalid_txid", 422, "Not a transaction id of this chain."),
    (
        "key_missing",
        401,
        "Send the API key as `Authorization: Bearer ck_...`.",
    ),
    (
        "key_malformed",
        401,
        "Not an API key as a whole: its checksum does not fit.",
    ),
    ("key_unknown", 401, "There is no such API key."),
    ("key_expired", 401, "The API key had an end, and that is over."),
    ("key_revoked", 401, "The API key was revoked."),
    (
        "bad_signature",
        401,
        "Inbox: not signed by the source, or not for this inbox.",
    ),
    (
        "stale_time",
        401,
        "Inbox: the time that was signed is too long ago, or to come.",
    ),
    (
        "scope_missing",
        403,
        "The API key may not do this: `detail` names the scope.",
    ),
    (
        "merchant_key_needed",
        403,
        "This is done for a merchant, and the key is an operator's.",
    ),
    (
        "not_found",
        404,
        "There is no such path or thing, or it is another merchant's.",
    ),
    (
        "method_not_allowed",
        405,
        "The path has no such method: `Allow` lists what it has.",
    ),
    ("body_too_slow", 408, "The body did not come in time."),
    (
        "in_progress",
        409,
        "The same request is still under way: send it again after `Retry-After`.",
    ),
    (
        "invoice_settled",
        409,
        "The invoice is paid, and cannot be taken back.",
    ),
    (
        "endpoint_exists",
        409,
        "There is an endpoint with this URL already.",
    ),
    (
        "refused",
        409,
        "It does not fit how things stand: `detail` says why.",
    ),
    ("body_too_large", 413, "The body is larger than it may be."),
    (
        "unsupported_media_type",
        415,
        "Send `Content-Type: application/json`.",
    ),
    (
        "invalid_field",
        422,
        "A field is missing, not known, or not of its form: `field` names it.",
    ),
    (
        "invalid_amount",
        422,
        "Not a plain decimal text above 0 such as \"0.29\".",
    ),
    (
        "amount_too_precise",
        422,
        "More digits after the point than the asset has; nothing is rounded.",
    ),
    ("amount_too_large", 422, "More than 2^256 - 1 base units."),
    (
        "unknown_asset",
        422,
        "No asset has this symbol, contract or CAIP-19 id here.",
    ),
    (
        "ambiguous_asset",
        422,
        "Several chains have this asset: name the chain, or give the CAIP-19 id.",
    ),
    ("unknown_chain", 422, "No chain has this alias or CAIP-2 id here."),
    ("unknown_merchant", 422, "There is no merchant of this name."),
    ("unknown_address", 422, "Not an address of any chain here."),
    (
        "bad_address_checksum",
        422,
        "A letter of the address is wrong, missing or in the wrong case.",
    ),
    (
        "mixed_case_address",
        422,
        "Upper and lower case mixed in a bech32 address.",
    ),
    (
        "wrong_network",
        422,
        "An address of another network than the chain's.",
    ),
    ("unknown_event_type", 422, "There is no event of this type."),
    (
        "url_refused",
        422,
        "Callbacks do not go to this URL: `detail` says why.",
    ),
    (
        "refused_terms",
        422,
        "An invoice cannot be made on these terms: `detail` says why.",
    ),
    (
        "idempotency_key_reused",
        422,
        "This `Idempotency-Key` was used for another request.",
    ),
    (
        "rate_limited",
        429,
        "Too many requests with this key: come again after `Retry-After`.",
    ),
    ("internal", 500, "Our fault: the log of creditd says more."),
    (
        "database_unavailable",
        503,
        "The database takes no request now. Send the same again: it acts once.",
    ),
    (
        "timeout",
        503,
        "There was no answer in time. Send the same request again: it acts once.",
    ),
    (
        "no_address",
        503,
        "There is no address to hand out: `detail` says why.",
    ),
    ("restoring", 503, "A restored backup is caught up with first."),
    ("no_randomness", 503, "The system gives no random numbers."),
    (
        "too_many_streams",
        503,
        "Too many windows show this page, or too many streams of events are open.",
    ),
];
