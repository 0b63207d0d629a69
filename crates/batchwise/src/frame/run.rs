//! The runner: what every subcommand that stays does alike. Outputs are opened before anything is attached, so that
//! a wrong argument is found first; then intervals go round until the duration is over, the user leaves or a signal
//! comes.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::args::{RunArgs, StayArgs};
use super::metrics::{Exporter, Metrics};
use super::rows::{Form, Output, View};
use super::signals::stop_flag;
use super::stdout::WhenUnread;
use super::ticks::{Ticks, Turn};

/// What a subcommand brings.
pub trait Agent {
    /// An interval, as it is shown.
    type View: View;
    /// What is served of it; `()`: nothing.
    type Metrics: Metrics;

    /// Until it has to look again, where that is before the interval's end.
    fn due(&self) -> Duration {
        Duration::MAX
    }

    /// Readable when it has to look at once.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Looks at what cannot wait for the interval's end. It does so at each turn, also before an interval is closed.
    fn look(&mut self, _turn: Turn, _ticks: &mut Ticks) -> anyhow::Result<()> {
        Ok(())
    }

    /// Closes the interval. None: there is nothing to show.
    fn close(&mut self, turn: Turn) -> anyhow::Result<Option<Self::View>>;

    /// Takes what was shown into the metrics.
    fn serve(&mut self, view: &Self::View, metrics: &mut Self::Metrics);

    /// The loop is over: detaches, and tells people the last.
    fn end(&mut self) -> anyhow::Result<String> {
        Ok(String::new())
    }
}

/// Where views go: standard output, and who asks for metrics.
pub struct Outputs<V: View, M> {
    output: Output<V>,
    exporter: Option<Exporter<M>>,
}

impl<V: View, M: Metrics> Outputs<V, M> {
    /// Opens both. `waiting` is said while there are no rows; it may be empty.
    pub fn open(
        stay: &StayArgs,
        form: Form,
        when_unread: WhenUnread,
        waiting: String,
    ) -> anyhow::Result<Self> {
        let exporter = Exporter::open(stay.metrics.as_deref(), stay.otlp.as_deref())?;
        Ok(Self {
            output: Output::open(form, when_unread, waiting)?,
            exporter,
        })
    }

    /// Serves and shows a view, which `serve` takes into the metrics. Without one the metrics say that the loop goes
    /// round.
    pub fn publish(
        &mut self,
        view: Option<&V>,
        serve: impl FnOnce(&V, &mut M),
    ) -> anyhow::Result<()> {
        if let Some(exporter) = &self.exporter {
            exporter.update(|metrics| {
                if let Some(view) = view {
                    serve(view, metrics);
                }
            });
        }
        view.map_or(Ok(()), |view| self.output.show(view))
    }

    /// Writes text between intervals; only where people read.
    pub fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.output.say(text)
    }

    /// Puts the terminal back, waits until all is written, and says this last where people read.
    pub fn finish(&mut self, last: &str) -> anyhow::Result<()> {
        self.output.finish(last)
    }
}

/// All that an agent goes round with.
pub struct Runner<V: View, M> {
    pub outputs: Outputs<V, M>,
    interval: Duration,
    duration: Option<Duration>,
    stop: Arc<AtomicBool>,
}

impl<V: View, M: Metrics> Runner<V, M> {
    /// Opens the outputs; signals stop what follows.
    pub fn open(
        args: &RunArgs,
        form: Form,
        when_unread: WhenUnread,
        waiting: String,
    ) -> anyhow::Result<Self> {
        let stop = stop_flag()?;
        let stay = &args.stay;
        Ok(Self {
            outputs: Outputs::open(stay, form, when_unread, waiting)?,
            interval: args.interval,
            duration: stay.duration,
            stop,
        })
    }

    /// Runs one that only acts when an interval is over: `close` gives the view, `serve` takes it into the metrics.
    pub fn run_intervals(
        self,
        close: impl FnMut(Turn) -> anyhow::Result<Option<V>>,
        serve: impl FnMut(&V, &mut M),
    ) -> anyhow::Result<()> {
        let of = PhantomData;
        self.run(&mut Intervals { close, serve, of })
    }

    /// Runs until the duration is over, the user leaves, or a signal comes. The first interval begins now.
    pub fn run(mut self, agent: &mut impl Agent<View = V, Metrics = M>) -> anyhow::Result<()> {
        let mut ticks = Ticks::new(self.stop, self.interval, self.duration);
        let outputs = &mut self.outputs;
        loop {
            let turn = ticks.turn(agent.due(), |time| outputs.output.wait(time, agent.wake()))?;
            agent.look(turn, &mut ticks)?;
            let turn = match turn {
                Turn::Look | Turn::Interval if ticks.is_stopped() => Turn::Stopped,
                Turn::Look => continue,
                turn => turn,
            };
            let view = agent.close(turn)?;
            outputs.publish(view.as_ref(), |view, metrics| agent.serve(view, metrics))?;
            if turn.is_last() {
                break;
            }
        }
        let last = agent.end()?;
        outputs.finish(&last)
    }
}

/// See [`Runner::run_intervals`].
struct Intervals<C, S, V, M> {
    close: C,
    serve: S,
    of: PhantomData<(V, M)>,
}

impl<C, S, V: View, M: Metrics> Agent for Intervals<C, S, V, M>
where
    C: FnMut(Turn) -> anyhow::Result<Option<V>>,
    S: FnMut(&V, &mut M),
{
    type View = V;
    type Metrics = M;

    fn close(&mut self, turn: Turn) -> anyhow::Result<Option<V>> {
        (self.close)(turn)
    }

    fn serve(&mut self, view: &V, metrics: &mut M) {
        (self.serve)(view, metrics);
    }
}
