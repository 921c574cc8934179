//! The constants of `f32` and `f64`, and what they do with their bits.
//!
//! Polynomials are Chebyshev fits over slightly more than their range, computed in high precision and rounded.

use super::Real;
use super::power::power_of_singles;

/// What both types do with their bits, each with its own integers.
macro_rules! on_bits {
    ($real:ty, $bits:ty) => {
        #[inline(always)]
        fn times_plus<const FUSED: bool>(self, factor: Self, summand: Self) -> Self {
            if FUSED {
                self.mul_add(factor, summand)
            } else {
                self * factor + summand
            }
        }

        #[inline(always)]
        fn widen(self) -> f64 {
            self as f64
        }

        #[inline(always)]
        fn narrow(wide: f64) -> Self {
            wide as Self
        }

        #[inline(always)]
        fn not_a_number(self) -> bool {
            self.is_nan()
        }

        #[inline(always)]
        fn magnitude(self) -> Self {
            self.abs()
        }

        #[inline(always)]
        fn with_sign_of(self, other: Self) -> Self {
            self.copysign(other)
        }

        #[inline(always)]
        fn leading(self) -> Self {
            const TRAILING: u32 = <$real>::MANTISSA_DIGITS.div_ceil(2);
            Self::from_bits(self.to_bits() >> TRAILING << TRAILING)
        }

        #[inline(always)]
        fn power_of_two(rounded: Self) -> (Self, Self) {
            const FRACTION: u32 = <$real>::MANTISSA_DIGITS - 1;
            const BIAS: $bits = <$real>::MAX_EXP as $bits - 1;
            // Twice the bias keeps the sum positive, so that halving needs no signed shift.
            let exponents = rounded
                .to_bits()
                .wrapping_sub(Self::ROUNDER.to_bits())
                .wrapping_add(2 * BIAS);
            let first = exponents >> 1;
            let second = exponents.wrapping_sub(first);
            (
                Self::from_bits(first << FRACTION),
                Self::from_bits(second << FRACTION),
            )
        }

        #[inline(always)]
        fn fraction_and_exponent(self) -> (Self, Self) {
            const FRACTION: u32 = <$real>::MANTISSA_DIGITS - 1;
            const BIAS: $bits = <$real>::MAX_EXP as $bits - 1;
            const ROOT_OF_HALF: $bits = (std::f64::consts::FRAC_1_SQRT_2 as $real).to_bits();
            const UP: $real = (1u64 << <$real>::MANTISSA_DIGITS) as $real;
            // Numbers below the normal ones have no exponent of their own.
            let small = self < Self::MIN_POSITIVE;
            let (x, shift) = if small {
                (self * UP, <$real>::MANTISSA_DIGITS as $real)
            } else {
                (self, 0.0)
            };
            let shifted = x
                .to_bits()
                .wrapping_sub(ROOT_OF_HALF)
                .wrapping_add(BIAS << FRACTION);
            let exponent = shifted >> FRACTION;
            let m = Self::from_bits((shifted & ((1 << FRACTION) - 1)).wrapping_add(ROOT_OF_HALF));
            // An integer below 2^FRACTION becomes a float by standing in the fraction of a large one.
            let e = Self::from_bits(Self::ROUNDER.to_bits().wrapping_add(exponent));
            (m, e - (Self::ROUNDER + BIAS as $real) - shift)
        }
    };
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const HALF: Self = 0.5;
    const ONE: Self = 1.0;
    const TWO: Self = 2.0;
    const INFINITY: Self = f32::INFINITY;
    const NAN: Self = f32::NAN;
    const LOG2_E: Self = std::f32::consts::LOG2_E;
    const LN2_HIGH: Self = 0.693_145_75;
    const LN2_LOW: Self = 1.428_606_8e-6;
    const ROUNDER: Self = 12_582_912.0;
    const EXP_RANGE: (Self, Self) = (-104.0, 89.0);
    const VANISHING: Self = -120.0;
    const EXP: &'static [Self] = &[
        0.5,
        0.166_665_77,
        0.041_666_554,
        0.008_363_233,
        0.001_392_625,
    ];
    const LOG: &'static [Self] = &[0.666_666_87, 0.399_887_35, 0.295_820_24];
    const TAIL_END: Self = 16.0;
    const TAIL_MIDDLE: Self = 4.0;
    const TAIL: &'static [Self] = &[
        0.755_285_14,
        -0.607_896_57,
        0.387_136_7,
        -0.186_523_84,
        0.060_405_478,
        -0.007_522_386_5,
        -0.003_515_919,
        0.001_563_37,
        0.000_179_049_4,
        -0.000_130_122_31,
    ];

    on_bits!(f32, u32);

    #[inline(always)]
    fn gelu_argument(self) -> (Self, Self) {
        let (high, _) = f64::from(self).gelu_argument();
        let rounded = high as f32;
        (rounded, (high - f64::from(rounded)) as f32)
    }

    #[inline(always)]
    fn power<const FUSED: bool>(self, exponent: Self) -> Self {
        power_of_singles::<FUSED>(self.into(), exponent.into()) as f32
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const HALF: Self = 0.5;
    const ONE: Self = 1.0;
    const TWO: Self = 2.0;
    const INFINITY: Self = f64::INFINITY;
    const NAN: Self = f64::NAN;
    const LOG2_E: Self = std::f64::consts::LOG2_E;
    const LN2_HIGH: Self = 0.693_147_180_559_208_2;
    const LN2_LOW: Self = 7.371_002_565_167_799e-13;
    const ROUNDER: Self = 6_755_399_441_055_744.0;
    const EXP_RANGE: (Self, Self) = (-746.0, 710.0);
    const VANISHING: Self = -760.0;
    const EXP: &'static [Self] = &[
        0.500_000_000_000_000_1,
        0.166_666_666_666_666_69,
        0.041_666_666_666_623_824,
        0.008_333_333_333_330_039,
        0.001_388_888_891_736_708_1,
        0.000_198_412_698_631_715_57,
        2.480_152_105_786_820_4e-5,
        2.755_726_827_690_569_6e-6,
        2.762_020_159_103_154_7e-7,
        2.510_047_250_569_499_6e-8,
    ];
    const LOG: &'static [Self] = &[
        0.666_666_666_666_667,
        0.399_999_999_998_982_7,
        0.285_714_286_265_333_35,
        0.222_222_110_438_224_87,
        0.181_828_957_468_014_28,
        0.153_315_017_212_074_2,
        0.146_191_647_771_864_2,
    ];
    const TAIL_END: Self = 40.0;
    const TAIL_MIDDLE: Self = 5.0;
    const TAIL: &'static [Self] = &[
        0.769_193_049_750_063,
        -0.665_382_502_890_056_7,
        0.495_305_615_969_973_86,
        -0.313_533_156_671_299_55,
        0.165_020_366_170_511_13,
        -0.069_118_638_706_404_36,
        0.020_795_066_797_416_595,
        -0.002_993_376_770_159_353_2,
        -0.000_797_869_373_946_913_8,
        0.000_544_899_070_773_315_9,
        -5.937_586_780_212_169e-5,
        -4.976_288_868_029_808e-5,
        1.668_169_444_669_088_2e-5,
        3.981_274_923_141_603e-6,
        -2.770_264_894_685_992e-6,
        -3.376_318_795_644_607e-7,
        4.343_124_300_104_718e-7,
        4.385_236_079_192_329e-8,
        -6.654_007_401_252_51e-8,
        -1.062_393_743_993_297_1e-8,
        7.573_702_456_952_603e-9,
        2.206_186_085_795_688_6e-9,
    ];

    on_bits!(f64, u64);

    #[inline(always)]
    fn gelu_argument(self) -> (Self, Self) {
        let x = self;
        let argument = x * (1.595_769_121_605_730_8 + 0.071_354_816_272_600_25 * (x * x));
        let argument = if argument < -1000.0 {
            -1000.0
        } else {
            argument
        };
        (if argument > 1000.0 { 1000.0 } else { argument }, 0.0)
    }

    #[inline(always)]
    fn power<const FUSED: bool>(self, exponent: Self) -> Self {
        self.powf(exponent)
    }
}
