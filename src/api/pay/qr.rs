//! A QR code as SVG that stands in the page itself: no image is loaded from anywhere.

use qrcode::{Color, EcLevel, QrCode};
use std::fmt::Write as _;

/// The light frame that readers need, in modules.
const QUIET: usize = 4;

/// The code of exactly this text, dark on light whatever the page's colours are; `None` of a text that is too
/// long for one.
pub(super) fn svg(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::M).ok()?;
    let width = code.width();
    let side = width + 2 * QUIET;
    let mut path = String::new();
    for (row, modules) in code.to_colors().chunks(width).enumerate() {
        let mut column = 0;
        for run in modules.chunk_by(|a, b| a == b) {
            if run.first() == Some(&Color::Dark) {
                let (x, y, length) = (column + QUIET, row + QUIET, run.len());
                let _ = write!(path, "M{x} {y}h{length}v1h-{length}z");
            }
            column += run.len();
        }
    }
    Some(format!(
        "<svg class=\"qr\" role=\"img\" aria-label=\"QR code of the payment\" viewBox=\"0 0 {side} {side}\" \
         shape-rendering=\"crispEdges\"><rect width=\"{side}\" height=\"{side}\" fill=\"#fff\"/>\
         <path d=\"{path}\" fill=\"#000\"/></svg>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws the rectangles of the path and has them read.
    fn read(svg: &str) -> String {
        let between = |text: &str, from: &str, to: &str| {
            let (_, rest) = text.split_once(from).unwrap();
            rest.split_once(to).unwrap().0.to_owned()
        };
        let side: usize = between(svg, "viewBox=\"0 0 ", " ").parse().unwrap();
        let mut is_dark = vec![false; side * side];
        for rectangle in between(svg, " d=\"M", "\"").split('M') {
            let numbers: Vec<usize> = rectangle
                .split(|letter: char| !letter.is_ascii_digit())
                .filter_map(|digits| digits.parse().ok())
                .collect();
            let [x, y, length, height, back] = numbers[..] else {
                panic!("a rectangle: {rectangle}");
            };
            assert_eq!((height, back), (1, length));
            is_dark[y * side + x..][..length].fill(true);
        }
        let scale = 4;
        let dot = |x: usize, y: usize| {
            if is_dark[y / scale * side + x / scale] {
                0
            } else {
                255
            }
        };
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(side * scale, side * scale, dot);
        let grids = image.detect_grids();
        assert_eq!(grids.len(), 1, "one code");
        grids[0].decode().unwrap().1
    }

    #[test]
    fn a_code_reads_as_exactly_its_text() {
        let max = "1".repeat(78);
        for text in [
            "bitcoin:bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080?amount=0.00000001".to_owned(),
            "bitcoin:1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2?amount=21000000&message=%3Cscript%3E".to_owned(),
            format!(
                "ethereum:0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48@8453/transfer\
                 ?address=0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed&uint256={max}"
            ),
        ] {
            assert_eq!(read(&svg(&text).unwrap()), text);
        }
        assert_eq!(svg(&"x".repeat(5_000)), None);
    }
}
