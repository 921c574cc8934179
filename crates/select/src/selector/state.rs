//! What the machine does beside the calls, as far as anybody says.

use std::sync::atomic::Ordering;

use kernelwise_types::SystemState;

use super::Selector;
use crate::engine::lock;

impl Selector {
    /// Says how many processors others keep busy at the moment, if anybody looks: whoever shares the machine with a program that runs needs
    /// fewer threads. What is learned under one load is kept apart from what is learned under another, and each is chosen by
    /// as soon as it is said again. Times under load are not [`Evidence`](super::Evidence). It is also the load that what is [noticed](Self::noticed) may be
    /// due to.
    pub fn set_load(&self, busy_processors: u32) {
        let all = self.shared.host.load().machine().usable_threads();
        let busy = busy_processors.min(all);
        self.shared.load.store(busy, Ordering::Relaxed);
        let share = f64::from(busy_processors) / f64::from(all.max(1));
        lock(&self.shared.engine.state).load = Some(share);
    }

    /// Says what the machine does at the moment, if anybody looks: what is [noticed](Self::noticed) is told with a likely cause, and
    /// what goes along with slowdown is found. Used are the clock as a share of the processor's highest, the temperature, and the
    /// share of memory that is in use; what was not read is left out. How busy others keep the machine is not read off a state,
    /// which counts this process too: it is [said](Self::set_load).
    pub fn set_state(&self, state: &SystemState) {
        let host = self.shared.host.load();
        let machine = host.machine();
        let highest = machine.cpu.max_frequency.known().map(|clock| clock.get());
        let clock = state.frequency.known().map(|clock| clock.get());
        let installed = machine.memory.known().map(|bytes| bytes.0 as f64);
        let available = state.memory_available.known().map(|bytes| bytes.0 as f64);
        let share = |part: Option<f64>, of: Option<f64>| {
            let (part, of) = part.zip(of.filter(|of| *of > 0.0))?;
            Some(part / of)
        };
        let mut seen = lock(&self.shared.engine.state);
        *seen = kernelwise_model::watch::SystemState {
            load: seen.load,
            clock: share(clock, highest),
            temperature: state.temperature.known().map(|heat| heat.get()),
            memory_pressure: share(available, installed).map(|free| (1.0 - free).max(0.0)),
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use kernelwise_types::units::{Bytes, Celsius, Hertz, Share};
    use kernelwise_types::{Machine, Reading};

    use super::*;

    fn selector(machine: Machine) -> Selector {
        let builder = Selector::builder(machine, Vec::new());
        builder.background(false).build().unwrap()
    }

    #[test]
    fn a_state_is_told_in_the_units_of_those_who_watch() {
        let mut machine = kernelwise_probe::machine().with_threads(4);
        machine.cpu.max_frequency = Reading::Known(Hertz::new(4e9).unwrap());
        machine.memory = Reading::Known(Bytes(8 << 30));
        let sampler = kernelwise_probe::Sampler::start(kernelwise_probe::SamplerOptions::default());
        let mut state = sampler.unwrap().look().state.clone();
        state.frequency = Reading::Known(Hertz::new(3e9).unwrap());
        state.memory_available = Reading::Known(Bytes(2 << 30));
        state.temperature = Reading::Known(Celsius::new(61.0).unwrap());
        // This process is busy, and waits for memory now and then: neither is what others do.
        state.cpu_utilisation = Reading::Known(Share::new(0.97).unwrap());
        state.memory_pressure = Reading::Known(Share::new(0.01).unwrap());
        let told = |selector: &Selector| *lock(&selector.shared.engine.state);
        let seen = kernelwise_model::watch::SystemState {
            load: None,
            clock: Some(0.75),
            temperature: Some(61.0),
            memory_pressure: Some(0.75),
        };
        let known = selector(machine.clone());
        known.set_state(&state);
        assert_eq!(told(&known), seen);
        // Others keep one of four busy; then more than there are.
        known.set_load(1);
        known.set_state(&state);
        assert_eq!(told(&known).load, Some(0.25));
        known.set_load(6);
        assert_eq!(told(&known).load, Some(1.5));
        assert_eq!(known.shared.load(), 4);
        // A share of what nobody knows is none.
        machine.cpu.max_frequency = Reading::unknown("test");
        machine.memory = Reading::unknown("test");
        let unknown = selector(machine);
        unknown.set_state(&state);
        let heat_alone = kernelwise_model::watch::SystemState {
            clock: None,
            memory_pressure: None,
            ..seen
        };
        assert_eq!(told(&unknown), heat_alone);
    }
}
