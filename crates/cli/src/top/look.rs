//! What the terminal can show: colours, attributes, letters beyond ASCII.

use ratatui_core::style::{Color, Modifier, Style};

/// How things are shown. No meaning rests on it: each tone has its word or sign too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The eight colours that every colour terminal has.
    pub colour: bool,
    /// Bold, dim, reversed.
    pub attributes: bool,
    /// More than ASCII.
    pub unicode: bool,
}

/// What a piece of text is to its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    Plain,
    /// Headings of columns, keys.
    Quiet,
    /// The first line, names of what is looked at.
    Strong,
    /// The row that keys change, the open view, what is asked.
    Chosen,
    Good,
    /// Waits, is kept back, or is in doubt.
    Doubtful,
    Bad,
    /// One of several side by side.
    Series(usize),
}

impl Look {
    /// From the environment: `NO_COLOR` (no-color.org), `TERM`, and the locale's character set.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let terminal = set("TERM").unwrap_or_default();
        let dumb = terminal.is_empty() || terminal == "dumb";
        // DEC's own, and variants of others that say so in their name (terminfo(5)).
        let monochrome = terminal.starts_with("vt1") || terminal.starts_with("vt2");
        let monochrome = monochrome || terminal.ends_with("-m") || terminal.ends_with("-mono");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Self {
            colour: !dumb && !monochrome && set("NO_COLOR").is_none(),
            attributes: !dumb,
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    pub fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let style = match tone {
            _ if !self.attributes => style,
            Tone::Strong => style.add_modifier(Modifier::BOLD),
            Tone::Chosen => style.add_modifier(Modifier::REVERSED),
            Tone::Quiet if !self.colour => style.add_modifier(Modifier::DIM),
            Tone::Bad if !self.colour => style.add_modifier(Modifier::BOLD),
            _ => style,
        };
        if !self.colour {
            return style;
        }
        match tone {
            Tone::Plain | Tone::Strong | Tone::Chosen => style,
            Tone::Quiet => style.fg(Color::DarkGray),
            Tone::Good => style.fg(Color::Green),
            Tone::Doubtful => style.fg(Color::Yellow),
            Tone::Bad => style.fg(Color::Red),
            Tone::Series(number) => style.fg(SERIES[number % SERIES.len()]),
        }
    }
}

const SERIES: [Color; 6] =
    [Color::Cyan, Color::Magenta, Color::Yellow, Color::Green, Color::Blue, Color::Red];

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)]) -> Look {
        Look::of(|name| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        assert!(look(&[("TERM", "xterm-256color"), ("NO_COLOR", "")]).colour);
        for variables in [
            &[("TERM", "xterm"), ("NO_COLOR", "1")][..],
            &[("TERM", "dumb")],
            &[("TERM", "vt100")],
            &[("TERM", "xterm-mono")],
            &[],
        ] {
            let look = look(variables);
            assert!(!look.colour, "{variables:?}");
            for tone in [Tone::Good, Tone::Bad, Tone::Series(2), Tone::Quiet, Tone::Chosen] {
                assert_eq!((look.style(tone).fg, look.style(tone).bg), (None, None));
            }
        }
        assert_eq!(look(&[("TERM", "dumb")]).style(Tone::Chosen), Style::new());
    }

    #[test]
    fn letters_follow_the_locale() {
        assert!(look(&[("LANG", "de_DE.UTF-8")]).unicode);
        assert!(!look(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]).unicode);
        assert!(!look(&[]).unicode);
    }
}
