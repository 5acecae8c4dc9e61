//! Just enough HTTP/1.1 to play a server that misbehaves, which no well-made server library allows.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

/// One request, its body whole.
pub struct Request {
    pub verb: String,
    pub path: String,
    pub authorization: Option<String>,
    pub body: Vec<u8>,
}

/// The next request of a kept-alive connection; `None` when the client has closed it.
pub fn read_request(from: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers = read_headers(from)?;
    let mut body = vec![0; content_length(&headers)?.unwrap_or(0)];
    from.read_exact(&mut body)?;
    let authorization = header(&headers, "authorization").map(str::to_owned);
    Ok(Some(Request {
        verb: verb.to_owned(),
        path: path.to_owned(),
        authorization,
        body,
    }))
}

fn read_headers(from: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return Ok(headers),
        }
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.as_str())
}

fn content_length(headers: &[(String, String)]) -> io::Result<Option<usize>> {
    let parse = |value: &str| {
        value
            .parse()
            .map_err(|_| io::Error::other(format!("content-length: {value}")))
    };
    header(headers, "content-length").map(parse).transpose()
}

/// The head of a response; without a length the body ends when the connection does.
pub fn head(status: u16, content_type: &str, content_length: Option<u64>) -> String {
    let length = match content_length {
        Some(bytes) => format!("Content-Length: {bytes}"),
        None => "Connection: close".to_owned(),
    };
    format!("HTTP/1.1 {status} Status\r\nContent-Type: {content_type}\r\n{length}\r\n\r\n")
}

/// A whole response without a body that tells the client when to come again, if it does.
pub fn refuse(to: &mut TcpStream, status: u16, retry_after: Option<&str>) -> io::Result<()> {
    let retry_after = retry_after.map(|when| format!("Retry-After: {when}\r\n"));
    let head = head(status, "text/plain", Some(0));
    let (start, end) = head.split_at(head.len() - 2);
    write!(to, "{start}{}{end}", retry_after.unwrap_or_default())
}

/// A whole, well-behaved response.
pub fn respond(to: &mut TcpStream, status: u16, content_type: &str, body: &[u8]) -> io::Result<()> {
    let mut answer = head(status, content_type, Some(body.len() as u64)).into_bytes();
    answer.extend_from_slice(body);
    to.write_all(&answer)
}

/// Hands a request to the real server at a loopback port: its status, content type and body.
pub fn forward(port: u16, request: &Request, credentials: &str) -> io::Result<(u16, String, Vec<u8>)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    write!(
        stream,
        "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {}\r\n",
        request.verb,
        request.path,
        basic(credentials),
    )?;
    // Anvil reads no body that is not called JSON.
    if !request.body.is_empty() {
        write!(stream, "Content-Type: application/json\r\n")?;
    }
    write!(stream, "Content-Length: {}\r\n\r\n", request.body.len())?;
    stream.write_all(&request.body)?;
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line)?;
    let status = line.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("status line: {line:?}")))?;
    let headers = read_headers(&mut from)?;
    let mut body = Vec::new();
    match content_length(&headers)? {
        Some(bytes) => {
            body.resize(bytes, 0);
            from.read_exact(&mut body)?;
        }
        None => {
            from.read_to_end(&mut body)?;
        }
    }
    Ok((
        status,
        header(&headers, "content-type")
            .unwrap_or("text/plain")
            .to_owned(),
        body,
    ))
}

/// Fetches a page from a loopback port: its status and body.
pub fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    let request = Request {
        verb: "GET".to_owned(),
        path: path.to_owned(),
        authorization: None,
        body: Vec::new(),
    };
    let (status, _, body) = forward(port, &request, "nobody:")?;
    Ok((status, String::from_utf8(body).map_err(io::Error::other)?))
}

/// The value of an `Authorization` header for `user:password`.
pub fn basic(credentials: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = "Basic ".to_owned();
    for three in credentials.as_bytes().chunks(3) {
        let bits = three
            .iter()
            .enumerate()
            .fold(0_u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
        for letter in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * letter) & 63).unwrap();
            text.push(if letter <= three.len() {
                char::from(LETTERS[index])
            } else {
                '='
            });
        }
    }
    text
}
