//! A join link as a QR code for a terminal.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Black on white whatever the terminal's colours, since readers want it so; two modules a character.
pub fn render(text: &str) -> anyhow::Result<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)?;
    let picture = code
        .render::<Dense1x2>()
        .dark_color(Dense1x2::Dark)
        .light_color(Dense1x2::Light)
        .quiet_zone(true)
        .build();
    let lines = picture.lines().map(|line| format!("\x1b[30;107m{line}\x1b[0m"));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}
