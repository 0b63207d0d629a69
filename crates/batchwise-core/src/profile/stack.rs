//! Which component and phase a sampled stack belongs to.

use super::rules::Class;
use super::{Component, Phase, Symbol};

/// What a sample is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributed {
    /// What for.
    pub component: Component,
    /// How the CPU came there.
    pub phase: Phase,
}

/// Where interrupts and system calls begin: what is outside of these is not the caller of what is inside.
const BOUNDARIES: &[(&str, Phase)] = &[
    ("asm_exc_", Phase::Fault),
    ("asm_sysvec_", Phase::HardIrq),
    ("asm_common_interrupt", Phase::HardIrq),
    ("asm_", Phase::HardIrq),
    ("el1h_64_irq", Phase::HardIrq),
    ("el0t_64_irq", Phase::HardIrq),
    ("el0t_64_sync", Phase::SystemCall),
    ("entry_SYSCALL_", Phase::SystemCall),
    ("entry_SYSENTER_", Phase::SystemCall),
    ("ret_from_fork", Phase::Thread),
    ("cpu_startup_entry", Phase::Idle),
    ("do_idle", Phase::Idle),
];

/// Softirqs run inside an interrupt, or where a process lets them in.
const SOFTIRQS: &[&str] = &["handle_softirqs", "__do_softirq", "do_softirq"];

/// Where interrupts are turned on again, and a timer's interrupt that had to wait comes at once.
const UNMASKING: &[&str] = &[
    "_raw_spin_unlock_irqrestore",
    "_raw_spin_unlock_irq",
    "_raw_read_unlock_irqrestore",
    "_raw_write_unlock_irqrestore",
    "handle_softirqs",
    "__do_softirq",
    "finish_task_switch",
    "do_syscall_64",
    "exit_to_user_mode_loop",
    "irqentry_exit_to_user_mode",
    "pv_native_irq_enable",
    "do_softirq",
];

fn is(symbol: &Symbol, names: &[&str]) -> bool {
    let base = symbol.name.split('.').next().unwrap_or_default();
    names.contains(&base)
}

/// What a stack of the kernel's functions, the innermost first, is counted as. `None` in it is an address
/// that is no function's. Without any it was user space. With `by_timer` the clock is an interrupt, which
/// waits where interrupts are off.
pub fn attribute<'a>(
    kernel: impl Iterator<Item = Option<&'a Symbol>>,
    by_timer: bool,
) -> Attributed {
    let mut component = None;
    let mut phase = None;
    let mut in_softirq = false;
    for (depth, symbol) in kernel.enumerate() {
        let Some(symbol) = symbol else {
            if depth == 0 {
                component = Some(Component::Unclassified);
            }
            continue;
        };
        let base = symbol.name.as_str();
        if depth == 0 && by_timer && is(symbol, UNMASKING) {
            component = Some(Component::Masked);
        }
        in_softirq |= is(symbol, SOFTIRQS);
        if component.is_none() {
            component = match symbol.class {
                Some(Class::Of(component)) => Some(component),
                // it may be anybody's
                None => Some(Component::Unclassified),
                Some(Class::Callers) => None,
            };
        }
        let boundary = BOUNDARIES.iter().find(|(start, _)| base.starts_with(start));
        if let Some((_, entered)) = boundary {
            phase = Some(*entered);
            break;
        }
    }
    let phase = match (in_softirq, phase) {
        (true, _) => Phase::SoftIrq,
        (false, Some(phase)) => phase,
        // a stack without an end that is known was cut off
        (false, None) => match component {
            None => Phase::User,
            Some(_) => Phase::SystemCall,
        },
    };
    Attributed {
        component: component.unwrap_or(match phase {
            Phase::User => Component::Application,
            _ => Component::Unclassified,
        }),
        phase,
    }
}
