
/// The canonical ABI: how values of the types above pass between the tool and its host. It is the
/// same for every interface.
pub mod abi {
    use std::alloc::{alloc, dealloc, realloc, Layout};

    /// A type that passes between the tool and its host, in memory or as core values. The bits of a
    /// core value are in a u64. Memory that a value needs passes with the value.
    pub trait Abi: Sized {
        const SIZE: usize;
        const ALIGN: usize;
        const FLAT: usize; // core values

        unsafe fn load(at: *mut u8) -> Self;
        unsafe fn store(self, at: *mut u8);
        unsafe fn lift(flat: &[u64]) -> Self;
        unsafe fn lower(self, flat: &mut [u64]);
    }

    pub const fn max(values: &[usize]) -> usize {
        let (mut most, mut i) = (0, 0);
        while i < values.len() {
            if values[i] > most {
                most = values[i];
            }
            i += 1;
        }
        most
    }

    pub const fn round(n: usize, to: usize) -> usize {
        (n + to - 1) & !(to - 1)
    }

    pub fn invalid() -> ! {
        panic!("the host passed a value that is not of its type")
    }

    unsafe fn obtain(size: usize, align: usize) -> *mut u8 {
        if size == 0 {
            return align as *mut u8;
        }
        alloc(Layout::from_size_align_unchecked(size, align))
    }

    unsafe fn release(at: *mut u8, size: usize, align: usize) {
        if size > 0 {
            dealloc(at, Layout::from_size_align_unchecked(size, align));
        }
    }

    #[cfg(target_arch = "wasm32")]
    #[export_name = "cabi_realloc"]
    unsafe extern "C" fn cabi_realloc(old: *mut u8, size: usize, align: usize, new: usize) -> *mut u8 {
        if size == 0 {
            return obtain(new, align);
        }
        realloc(old, Layout::from_size_align_unchecked(size, align), new)
    }

    /// Passes a value by an address, which take turns into the value again.
    pub unsafe fn give<T: Abi>(value: T) -> *mut u8 {
        let at = obtain(T::SIZE, T::ALIGN);
        value.store(at);
        at
    }

    pub unsafe fn take<T: Abi>(at: *mut u8) -> T {
        let value = T::load(at);
        release(at, T::SIZE, T::ALIGN);
        value
    }

    /// Calls a function that writes its result to an address.
    pub unsafe fn receive<T: Abi>(call: impl FnOnce(*mut u8)) -> T {
        let at = obtain(T::SIZE, T::ALIGN);
        call(at);
        take(at)
    }

    macro_rules! numbers {
        ($($type:ty, $memory:ty, $from:expr, $to:expr;)*) => {$(
            impl Abi for $type {
                const SIZE: usize = std::mem::size_of::<$memory>();
                const ALIGN: usize = Self::SIZE;
                const FLAT: usize = 1;

                unsafe fn load(at: *mut u8) -> Self {
                    Self::lift(&[(at as *mut $memory).read_unaligned() as u64])
                }
                unsafe fn store(self, at: *mut u8) {
                    let to: fn(Self) -> u64 = $to;
                    (at as *mut $memory).write_unaligned(to(self) as $memory)
                }
                unsafe fn lift(flat: &[u64]) -> Self {
                    let from: fn(u64) -> Self = $from;
                    from(flat[0])
                }
                unsafe fn lower(self, flat: &mut [u64]) {
                    let to: fn(Self) -> u64 = $to;
                    flat[0] = to(self)
                }
            }
        )*};
    }

    numbers! {
        bool, u8, |bits| bits as u32 != 0, |v| v as u64;
        u8, u8, |bits| bits as u8, |v| v as u64;
        i8, u8, |bits| bits as i8, |v| v as i32 as u32 as u64;
        u16, u16, |bits| bits as u16, |v| v as u64;
        i16, u16, |bits| bits as i16, |v| v as i32 as u32 as u64;
        u32, u32, |bits| bits as u32, |v| v as u64;
        i32, u32, |bits| bits as i32, |v| v as u32 as u64;
        u64, u64, |bits| bits, |v| v;
        i64, u64, |bits| bits as i64, |v| v as u64;
        f32, u32, |bits| f32::from_bits(bits as u32), |v| v.to_bits() as u64;
        f64, u64, f64::from_bits, f64::to_bits;
        char, u32, |bits| char::from_u32(bits as u32).unwrap_or_else(|| invalid()), |v| v as u64;
    }

    impl Abi for () {
        const SIZE: usize = 0;
        const ALIGN: usize = 1;
        const FLAT: usize = 0;

        unsafe fn load(_: *mut u8) {}
        unsafe fn store(self, _: *mut u8) {}
        unsafe fn lift(_: &[u64]) {}
        unsafe fn lower(self, _: &mut [u64]) {}
    }

    macro_rules! in_memory {
        ([$($generic:ident)?] $type:ty, $lift:expr, $lower:expr) => {
            impl$(<$generic: Abi>)? Abi for $type {
                const SIZE: usize = 8;
                const ALIGN: usize = 4;
                const FLAT: usize = 2;

                unsafe fn load(at: *mut u8) -> Self {
                    Self::lift(&[u32::load(at) as u64, u32::load(at.add(4)) as u64])
                }
                unsafe fn store(self, at: *mut u8) {
                    let mut flat = [0; 2];
                    self.lower(&mut flat);
                    (flat[0] as u32).store(at);
                    (flat[1] as u32).store(at.add(4));
                }
                unsafe fn lift(flat: &[u64]) -> Self {
                    let lift: unsafe fn(*mut u8, usize) -> Self = $lift;
                    lift(flat[0] as u32 as usize as *mut u8, flat[1] as u32 as usize)
                }
                unsafe fn lower(self, flat: &mut [u64]) {
                    let lower: unsafe fn(Self) -> (*mut u8, usize) = $lower;
                    let (at, length) = lower(self);
                    flat[0] = at as usize as u64;
                    flat[1] = length as u64;
                }
            }
        };
    }

    unsafe fn lift_text(at: *mut u8, length: usize) -> String {
        if length == 0 {
            return String::new();
        }
        String::from_utf8(Vec::from_raw_parts(at, length, length)).unwrap_or_else(|_| invalid())
    }

    unsafe fn lower_text(text: String) -> (*mut u8, usize) {
        let bytes = Box::leak(text.into_bytes().into_boxed_slice());
        (bytes.as_mut_ptr(), bytes.len())
    }

    unsafe fn lift_list<T: Abi>(at: *mut u8, length: usize) -> Vec<T> {
        let list = (0..length).map(|i| T::load(at.add(i * T::SIZE))).collect();
        release(at, length * T::SIZE, T::ALIGN);
        list
    }

    unsafe fn lower_list<T: Abi>(list: Vec<T>) -> (*mut u8, usize) {
        let length = list.len();
        let at = obtain(length * T::SIZE, T::ALIGN);
        for (i, value) in list.into_iter().enumerate() {
            value.store(at.add(i * T::SIZE));
        }
        (at, length)
    }

    in_memory!([] String, lift_text, lower_text);
    in_memory!([T] Vec<T>, lift_list::<T>, lower_list::<T>);

    /// Implements Abi for what has several parts. The form makes a value of the parts, and takes
    /// one apart.
    macro_rules! product {
        ([$($generic:ident)*] $self:ty, [$($form:tt)*], $($part:ident: $type:ty,)*) => {
            #[allow(non_snake_case)]
            impl<$($generic: $crate::bindings::abi::Abi),*> $crate::bindings::abi::Abi for $self {
                const SIZE: usize = {
                    let end = 0;
                    $(let end = $crate::bindings::abi::round(end, <$type as $crate::bindings::abi::Abi>::ALIGN) + <$type as $crate::bindings::abi::Abi>::SIZE;)*
                    $crate::bindings::abi::round(end, <Self as $crate::bindings::abi::Abi>::ALIGN)
                };
                const ALIGN: usize = $crate::bindings::abi::max(&[$(<$type as $crate::bindings::abi::Abi>::ALIGN),*]);
                const FLAT: usize = 0 $(+ <$type as $crate::bindings::abi::Abi>::FLAT)*;

                unsafe fn load(at: *mut u8) -> Self {
                    let end = 0;
                    $(
                        let begin = $crate::bindings::abi::round(end, <$type as $crate::bindings::abi::Abi>::ALIGN);
                        let $part = <$type as $crate::bindings::abi::Abi>::load(at.add(begin));
                        let end = begin + <$type as $crate::bindings::abi::Abi>::SIZE;
                    )*
                    let _ = end;
                    $($form)*
                }
                unsafe fn store(self, at: *mut u8) {
                    let $($form)* = self;
                    let end = 0;
                    $(
                        let begin = $crate::bindings::abi::round(end, <$type as $crate::bindings::abi::Abi>::ALIGN);
                        $crate::bindings::abi::Abi::store($part, at.add(begin));
                        let end = begin + <$type as $crate::bindings::abi::Abi>::SIZE;
                    )*
                    let _ = end;
                }
                unsafe fn lift(flat: &[u64]) -> Self {
                    $(
                        let $part = <$type as $crate::bindings::abi::Abi>::lift(flat);
                        let flat = &flat[<$type as $crate::bindings::abi::Abi>::FLAT..];
                    )*
                    let _ = flat;
                    $($form)*
                }
                unsafe fn lower(self, flat: &mut [u64]) {
                    let $($form)* = self;
                    $(
                        let (own, flat) = flat.split_at_mut(<$type as $crate::bindings::abi::Abi>::FLAT);
                        $crate::bindings::abi::Abi::lower($part, own);
                    )*
                    let _ = flat;
                }
            }
        };
    }
    pub(crate) use product;

    macro_rules! tuples {
        () => {};
        ($first:ident $($rest:ident)*) => {
            product!([$first $($rest)*] ($first, $($rest,)*), [($first, $($rest,)*)], $first: $first, $($rest: $rest,)*);
            tuples!($($rest)*);
        };
    }

    tuples!(A B C D E F G H I J K L M N O P Q R S U);

    /// Defines a record.
    macro_rules! record {
        ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name { $($(#[$doc])* pub $field: $type,)* }
            $crate::bindings::abi::product!([] $name, [$name { $($field,)* }], $($field: $type,)*);
        };
    }
    pub(crate) use record;

    pub const fn tag_size(cases: usize) -> usize {
        match cases {
            0..=0x100 => 1,
            0x101..=0x10000 => 2,
            _ => 4,
        }
    }

    pub unsafe fn load_tag(at: *mut u8, cases: usize) -> u32 {
        match tag_size(cases) {
            1 => u8::load(at) as u32,
            2 => u16::load(at) as u32,
            _ => u32::load(at),
        }
    }

    pub unsafe fn store_tag(tag: u32, at: *mut u8, cases: usize) {
        match tag_size(cases) {
            1 => (tag as u8).store(at),
            2 => (tag as u16).store(at),
            _ => tag.store(at),
        }
    }

    macro_rules! sum {
        ([$($generic:ident)*] $self:ty, $cases:literal, $($tag:literal $case:ident $(($value:ident: $type:ty))?,)*) => {
            impl<$($generic: $crate::bindings::abi::Abi),*> $crate::bindings::abi::Abi for $self {
                const SIZE: usize = $crate::bindings::abi::round(<Self as $crate::bindings::abi::Abi>::ALIGN + $crate::bindings::abi::max(&[$($(<$type as $crate::bindings::abi::Abi>::SIZE,)?)*]), <Self as $crate::bindings::abi::Abi>::ALIGN);
                const ALIGN: usize = $crate::bindings::abi::max(&[$crate::bindings::abi::tag_size($cases), $($(<$type as $crate::bindings::abi::Abi>::ALIGN,)?)*]);
                const FLAT: usize = 1 + $crate::bindings::abi::max(&[$($(<$type as $crate::bindings::abi::Abi>::FLAT,)?)*]);

                unsafe fn load(at: *mut u8) -> Self {
                    match $crate::bindings::abi::load_tag(at, $cases) {
                        $($tag => Self::$case $((<$type as $crate::bindings::abi::Abi>::load(at.add(<Self as $crate::bindings::abi::Abi>::ALIGN))))?,)*
                        _ => $crate::bindings::abi::invalid(),
                    }
                }
                unsafe fn store(self, at: *mut u8) {
                    match self {
                        $(Self::$case $(($value))? => {
                            $crate::bindings::abi::store_tag($tag, at, $cases);
                            $($crate::bindings::abi::Abi::store($value, at.add(<Self as $crate::bindings::abi::Abi>::ALIGN));)?
                        })*
                    }
                }
                unsafe fn lift(flat: &[u64]) -> Self {
                    match flat[0] as u32 {
                        $($tag => Self::$case $((<$type as $crate::bindings::abi::Abi>::lift(&flat[1..])))?,)*
                        _ => $crate::bindings::abi::invalid(),
                    }
                }
                unsafe fn lower(self, flat: &mut [u64]) {
                    match self {
                        $(Self::$case $(($value))? => {
                            flat[0] = $tag;
                            $($crate::bindings::abi::Abi::lower($value, &mut flat[1..]);)?
                        })*
                    }
                }
            }
        };
    }
    pub(crate) use sum;

    sum!([T] Option<T>, 2, 0 None, 1 Some(value: T),);
    sum!([T E] Result<T, E>, 2, 0 Ok(value: T), 1 Err(value: E),);

    /// Defines a variant.
    macro_rules! variant {
        ($(#[$meta:meta])* $name:ident, $cases:literal { $($(#[$doc:meta])* $tag:literal $case:ident $(($value:ident: $type:ty))?,)* }) => {
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq)]
            pub enum $name { $($(#[$doc])* $case $(($type))?,)* }
            $crate::bindings::abi::sum!([] $name, $cases, $($tag $case $(($value: $type))?,)*);
        };
    }
    pub(crate) use variant;

    /// Defines an enumeration.
    macro_rules! enumeration {
        ($(#[$meta:meta])* $name:ident, $cases:literal { $($(#[$doc:meta])* $tag:literal $case:ident,)* }) => {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $name { $($(#[$doc])* $case,)* }
            $crate::bindings::abi::sum!([] $name, $cases, $($tag $case,)*);
        };
    }
    pub(crate) use enumeration;

    /// Defines flags: Name::A | Name::B has two of them.
    macro_rules! flags {
        ($(#[$meta:meta])* $name:ident, $int:ty { $($(#[$doc:meta])* $bit:literal $flag:ident,)* }) => {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name($int);

            impl $name {
                $($(#[$doc])* pub const $flag: Self = Self(1 << $bit);)*

                pub fn empty() -> Self {
                    Self(0)
                }
                pub fn contains(self, other: Self) -> bool {
                    self.0 & other.0 == other.0
                }
            }

            impl std::ops::BitOr for $name {
                type Output = Self;

                fn bitor(self, other: Self) -> Self {
                    Self(self.0 | other.0)
                }
            }

            impl $crate::bindings::abi::Abi for $name {
                const SIZE: usize = <$int as $crate::bindings::abi::Abi>::SIZE;
                const ALIGN: usize = <$int as $crate::bindings::abi::Abi>::ALIGN;
                const FLAT: usize = 1;

                unsafe fn load(at: *mut u8) -> Self {
                    Self(<$int as $crate::bindings::abi::Abi>::load(at))
                }
                unsafe fn store(self, at: *mut u8) {
                    $crate::bindings::abi::Abi::store(self.0, at)
                }
                unsafe fn lift(flat: &[u64]) -> Self {
                    Self(<$int as $crate::bindings::abi::Abi>::lift(flat))
                }
                unsafe fn lower(self, flat: &mut [u64]) {
                    $crate::bindings::abi::Abi::lower(self.0, flat)
                }
            }
        };
    }
    pub(crate) use flags;
}
