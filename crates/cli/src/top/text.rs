//! Text of others on a terminal: names of networks, programs and devices are chosen by people who may mean harm.

use std::borrow::Cow;

use ratatui_core::text::Span;

/// In place of what must not be shown.
const REPLACED: char = '?';
/// Marks on one letter that are kept; scripts need two or three, a tower of hundreds spoils the lines around it.
const MOST_MARKS: usize = 3;

/// The text without what a terminal takes as an order, what turns the direction of writing, and what has no width that terminals agree on.
/// `unicode`: whether the terminal shows more than ASCII.
pub fn plain(text: &str, unicode: bool) -> Cow<'_, str> {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut marks = 0;
    for letter in text.chars() {
        if is_joiner(letter) {
            continue;
        }
        let wrong = letter.is_control() || turns_or_hides(letter) || (!unicode && !letter.is_ascii());
        let letter = if wrong { REPLACED } else { letter };
        marks = if width(letter.encode_utf8(&mut [0; 4])) == 0 { marks + 1 } else { 0 };
        if marks <= MOST_MARKS {
            kept.push(letter);
        }
    }
    Cow::Owned(kept)
}

/// Columns that the text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Joiners and selectors of variants: what they make of the letters beside them is as wide as each terminal likes.
fn is_joiner(letter: char) -> bool {
    matches!(letter, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0100}'..='\u{e01ef}')
}

/// Marks that turn the direction of writing, end lines, or cannot be seen (Unicode's category Cf, Zl and Zp, and fillers).
fn turns_or_hides(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e00ff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_the_terminal_are_not_passed_on() {
        for (text, shown) in [
            ("wlan0", "wlan0"),
            ("a\u{1b}[2Jb\r\n\tc\u{7f}", "a?[2Jb???c?"),
            ("\u{9b}31mred", "?31mred"),
            ("a\u{202e}b\u{2066}c", "a?b?c"),
            ("caf\u{e9} 日本", "caf\u{e9} 日本"),
            ("\u{1f468}\u{200d}\u{1f469}", "\u{1f468}\u{1f469}"),
        ] {
            assert_eq!(plain(text, true), shown);
        }
        assert_eq!(plain("café 日本", false), "caf? ??");
    }

    #[test]
    fn marks_do_not_pile_up() {
        let tower = format!("z{}y", "\u{301}".repeat(500));
        assert_eq!(plain(&tower, true), format!("z{}y", "\u{301}".repeat(MOST_MARKS)));
        assert_eq!(width("日本"), 4);
    }
}
