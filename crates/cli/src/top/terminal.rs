//! The terminal while the view has it, and how it gets back what it was.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Once;

use anyhow::Context;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::Show;
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// One write for a picture: over a slow line half a picture is worse than a late one.
type Output = BufWriter<Stdout>;

const ROOM: usize = 64 * 1_024;

/// The terminal in the mode of full-screen programs; as it was when this is dropped, and when the program panics.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<Output>>,
}

impl Screen {
    pub fn open() -> anyhow::Result<Self> {
        restore_at_panic();
        enter().context("the terminal cannot be used")?;
        let output = BufWriter::with_capacity(ROOM, io::stdout());
        match Terminal::new(CrosstermBackend::new(output)) {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(error).context("the terminal cannot be used")
            }
        }
    }

    /// Stops as other programs do at ^Z, and goes on when it is told to.
    pub fn suspend(&mut self) -> anyhow::Result<()> {
        restore();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP)?;
        enter()?;
        Ok(self.terminal.clear()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What was drawn and not yet written must not come after the restored screen.
        let _ = Write::flush(self.terminal.backend_mut());
        restore();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    let entered = execute!(io::stdout(), EnterAlternateScreen);
    if entered.is_err() {
        restore();
    }
    entered
}

/// A terminal that is gone needs nothing back.
fn restore() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// The message of a panic is to be read on the screen that stays.
fn restore_at_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}
