"""Exact arithmetic, and units."""

import ast
import difflib
import math
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Annotated, TypedDict

import starling

MOST_CHARS, MOST_BITS = 2_000, 14_000  # of a number: Python writes at most 4,300 digits

PREFIXES = {"Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "da": 1, "d": -1, "c": -2, "m": -3, "u": -6, "µ": -6, "n": -9, "p": -12, "f": -15}
# name: (dimension, factor to its base). Names before the bar take the prefixes above.
TABLE = {
    "length": "m=1 | in=0.0254 ft=0.3048 yd=0.9144 mi=1609.344 nmi=1852 furlong=201.168 au=149597870700 ly=9460730472580800 angstrom=1e-10",
    "mass": "g=0.001 t=1000 | lb=0.45359237 oz=0.028349523125 st=6.35029318 short_ton=907.18474 long_ton=1016.0469088 ct=0.0002",
    "time": "s=1 | min=60 h=3600 d=86400 week=604800 fortnight=1209600 year=31557600",
    "area": "| m2=1 km2=1e6 cm2=1e-4 mm2=1e-6 ha=1e4 acre=4046.8564224 ft2=0.09290304 in2=0.00064516 yd2=0.83612736 mi2=2589988.110336",
    "volume": "L=0.001 l=0.001 | m3=1 cm3=1e-6 mm3=1e-9 km3=1e9 in3=0.000016387064 ft3=0.028316846592 gal=0.003785411784 qt=0.000946352946 pt=0.000473176473 "
              "cup=0.0002365882365 floz=0.0000295735295625 tbsp=0.00001478676478125 tsp=0.00000492892159375 imp_gal=0.00454609 imp_pt=0.00056826125 bbl=0.158987294928",
    "speed": "| m/s=1 km/h=5/18 km/s=1000 mph=0.44704 kn=463/900 ft/s=0.3048",
    "force": "N=1 | lbf=4.4482216152605 kgf=9.80665",
    "pressure": "Pa=1 bar=100000 | atm=101325 psi=8896443230521/1290320000 mmHg=133.322387415 torr=20265/152",
    "energy": "J=1 Wh=3600 eV=1.602176634e-19 cal=4.184 | BTU=1055.05585262",
    "power": "W=1 | hp=745.69987158227022 PS=735.49875",
    "angle": "rad=1 | deg=pi/180 grad=pi/200 turn=pi*2 arcmin=pi/10800 arcsec=pi/648000",
    "data": "B=8 bit=1 | KiB=8192 MiB=8388608 GiB=8589934592 TiB=8796093022208 PiB=9007199254740992 Kibit=1024 Mibit=1048576",
    "frequency": "Hz=1 | rpm=1/60",
    "temperature": "K=1 | C=1 F=5/9 R=5/9",
}
OFFSETS = {"C": Fraction(27315, 100), "F": Fraction(45967, 100)}  # added before the factor: C + 273.15, F + 459.67
ALIASES = {
    "meter": "m", "metre": "m", "kilometer": "km", "kilometre": "km", "inch": "in", "inches": "in", "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi",
    "gram": "g", "kilogram": "kg", "tonne": "t", "pound": "lb", "lbs": "lb", "ounce": "oz", "stone": "st", "second": "s", "sec": "s", "minute": "min",
    "hour": "h", "hr": "h", "day": "d", "weeks": "week", "years": "year", "hectare": "ha", "liter": "L", "litre": "L", "gallon": "gal", "pint": "pt",
    "quart": "qt", "knot": "kn", "kph": "km/h", "newton": "N", "pascal": "Pa", "joule": "J", "calorie": "cal", "watt": "W", "horsepower": "hp",
    "degree": "deg", "radian": "rad", "byte": "B", "bits": "bit", "hertz": "Hz", "kelvin": "K", "celsius": "C", "°C": "C", "fahrenheit": "F", "°F": "F",
}
PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459")


class Conversion(TypedDict):
    value: str
    unit: str
    exact: bool
    fraction: str
    kind: str


class Result(TypedDict):
    value: str
    exact: bool
    fraction: str


Digits = Annotated[int, {"minimum": 1, "maximum": 100}]


def calculate(expression: str, digits: Digits = 30) -> Result:
    """Computes an arithmetic expression exactly, without errors of floating point. 0.1 + 0.2 is 0.3, and 1/3 * 3 is 1.

    Operators: + - * / // % ** and parentheses. Percent signs are the remainder: write 0.19 for 19%.
    Functions: abs, min, max, sum, floor, ceil, trunc, round(x, places) (half to even), gcd, lcm, factorial, comb, sqrt. Constants: pi, e.
    sqrt, pi and e may be rounded to about 60 digits, and exact is false then.

    expression: For example (1299.99 * 3) * 1.19
    digits: Significant digits of `value` when it has no end; `fraction` is exact
    """
    value, exact = evaluate("expression", expression)
    written, whole = decimal(value, digits)
    return {"value": written, "exact": exact and whole, "fraction": str(value) if exact else ""}


def convert_units(value: str, from_unit: str, to_unit: str, digits: Digits = 15) -> Conversion:
    """Converts a number from a unit to another one of its kind, with exact factors.

    Kinds: length, mass, time, area, volume (US; imp_gal, imp_pt are imperial), speed, force, pressure, energy, power, angle, data, frequency and
    temperature (C, F, K, R). SI prefixes work: km, mg, GB, kWh. Case counts: mW is not MW, B is a byte and bit a bit, C is Celsius.
    A year has 365.25 days. There are no months and no currencies.

    value: A number, or an expression as `calculate` takes it, such as 5 + 11/12
    from_unit: For example mi, kg, km/h, kWh, GiB
    digits: Significant digits of `value` when it has no end
    """
    number, exact = evaluate("value", value)
    kind, factor, offset, _ = unit("from_unit", from_unit)
    other, divisor, back, name = unit("to_unit", to_unit)
    if kind != other:
        raise starling.discard(f"to_unit: {from_unit} is a {kind} and {to_unit} is a {other}; hint: {other} units are {', '.join(names(other)[:12])}")
    exact = exact and not (kind == "angle" and (factor / divisor).denominator > 10 ** 9)
    result = (number + offset) * factor / divisor - back
    if kind == "temperature" and (number + offset) < 0:
        raise starling.discard(f"value: {value} {from_unit} is below absolute zero")
    written, whole = decimal(result, digits)
    return {"value": written, "unit": name, "exact": exact and whole, "fraction": str(result) if exact else "", "kind": kind}


# decimal writes the number with all its digits if they end within the limit, otherwise rounded, and returns whether it is exact.
def decimal(value, digits):
    if value.denominator == 1 and abs(value) < 10 ** 60:
        return str(value.numerator), True
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        wide = Context(prec=200).divide(Decimal(value.numerator), Decimal(value.denominator))
        if Fraction(wide) == value and len(wide.as_tuple().digits) <= max(digits, 60):
            return plain(wide), True
    context = Context(prec=digits, rounding=ROUND_HALF_EVEN, Emax=999999, Emin=-999999)
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return plain(rounded), Fraction(rounded) == value


def plain(number):
    text = format(number, "f") if -30 <= number.adjusted() <= 60 else str(number)
    return text.rstrip("0").rstrip(".") if "." in text and "E" not in text else text


def names(kind):
    return [entry.partition("=")[0] for entry in TABLE[kind].split() if entry != "|"]


def factor(text):
    if text.startswith("pi"):
        return PI * 2 if text == "pi*2" else PI / int(text[3:])
    return Fraction(text)


# unit returns the kind, factor, offset and name of a unit.
def unit(field, written):
    name = written.strip().replace("²", "2").replace("³", "3").replace("^", "").replace("μ", "µ")
    if name not in UNITS:
        for alias in (name, name.lower(), name.lower().removesuffix("s")):
            if alias in ALIASES:
                name = ALIASES[alias]
                break
    if name not in UNITS and len(name) > 3:
        name = name.removesuffix("s")
    if name not in UNITS:
        near = difflib.get_close_matches(name, [*UNITS, *ALIASES], 4, 0.5) or ["m", "kg", "s", "L"]
        raise starling.discard(f"{field}: there is no unit {written!r}; hint: near names are {', '.join(near)}, and case counts")
    return *UNITS[name], OFFSETS.get(name, Fraction(0)), name


def units():
    found = {}
    for kind, text in TABLE.items():
        prefixed = True
        for entry in text.split():
            if entry == "|":
                prefixed = False
                continue
            name, _, value = entry.partition("=")
            found[name] = kind, factor(value)
            if prefixed and name not in ("t", "l"):
                for prefix, power in PREFIXES.items():
                    found.setdefault(prefix + name, (kind, factor(value) * Fraction(10) ** power))
    found["ml"], found["cl"], found["dl"] = ("volume", Fraction(1, 10 ** 6)), ("volume", Fraction(1, 10 ** 5)), ("volume", Fraction(1, 10 ** 4))
    return found


UNITS = units()


class Wrong(Exception):
    pass


# evaluate returns the value of an expression, and whether it is exact.
def evaluate(field, text):
    if len(text) > MOST_CHARS:
        raise starling.discard(f"{field}: {len(text)} characters; the limit is {MOST_CHARS}")
    source = text.strip().replace("^", "**").replace("×", "*").replace("÷", "/").replace("−", "-")
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" at character {error.offset}" if getattr(error, "offset", None) else ""
        raise starling.discard(f"{field}: {text[:80]!r} is not an expression{place}; hint: write it as (1299.99 * 3) / 7, with a point for decimals and no thousands separators") from None
    try:
        state = {"exact": True}
        return bounded(compute(tree, source, state)), state["exact"]
    except Wrong as error:
        raise starling.discard(f"{field}: {error}") from None
    except RecursionError:
        raise starling.discard(f"{field}: the expression is nested too deeply; hint: split it into several") from None
    except ZeroDivisionError:
        raise starling.discard(f"{field}: a division by zero") from None


def compute(node, source, state):
    place = f"character {node.col_offset + 1}"
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            digits = ast.get_source_segment(source, node).replace("_", "")
            if len(digits) > 1_000 or abs(int(digits.lower().partition("e")[2] or 0) if not digits.lower().startswith("0x") else 0) > 5_000:
                raise Wrong(f"{place}: the number has too many digits")
            return Fraction(digits) if not digits.lower().startswith(("0x", "0b", "0o")) else Fraction(node.value)
        case ast.Name(id="pi" | "e"):
            state["exact"] = False
            return PI if node.id == "pi" else Fraction("2.71828182845904523536028747135266249775724709369995957496696763")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            value = compute(node.operand, source, state)
            return -value if isinstance(node.op, ast.USub) else value
        case ast.BinOp():
            a, b = compute(node.left, source, state), compute(node.right, source, state)
            try:
                return bounded(apply(node.op, a, b, state))
            except Wrong as error:
                raise Wrong(f"{place}: {error}") from None
            except ZeroDivisionError:
                raise Wrong(f"character {node.right.col_offset + 1}: a division by zero") from None
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            args = [compute(arg, source, state) for arg in node.args]
            try:
                return bounded(FUNCTIONS[name](state, *args))
            except (TypeError, ValueError) as error:
                raise Wrong(f"{place}: {name}: {error if isinstance(error, ValueError) else f'does not take {len(args)} arguments'}") from None
        case ast.Call(func=ast.Name(id=name)):
            raise Wrong(f"{place}: there is no function {name}; hint: there are {', '.join(FUNCTIONS)}")
        case ast.Name(id=name):
            raise Wrong(f"{place}: there is no name {name!r}; hint: put in its value, or convert units with convert_units")
        case ast.Tuple():
            raise Wrong(f"{place}: a comma is not part of a number; hint: write 1234.5, not 1,234.5")
    raise Wrong(f"{place}: only numbers, + - * / // % ** and functions are allowed")


def apply(op, a, b, state):
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div():
            return a / b
        case ast.FloorDiv():
            return Fraction(a // b)
        case ast.Mod():
            return a % b
        case ast.Pow():
            if b.denominator == 2 and abs(b) == Fraction(1, 2):
                root = square_root(state, a)
                return root if b > 0 else 1 / root
            if b.denominator != 1:
                raise Wrong("an exponent must be whole, or 1/2")
            if max(a.numerator.bit_length(), a.denominator.bit_length()) * abs(b.numerator) > MOST_BITS:
                raise Wrong("the power is too large")
            return Fraction(a) ** b.numerator
    raise Wrong("only + - * / // % ** are allowed; hint: there are no bits here")


def bounded(value):
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise Wrong(f"the number exceeds {MOST_BITS} bits")
    return value


def square_root(state, a):
    if a < 0:
        raise ValueError("the square root of a negative number")
    if math.isqrt(a.numerator) ** 2 == a.numerator and math.isqrt(a.denominator) ** 2 == a.denominator:
        return Fraction(math.isqrt(a.numerator), math.isqrt(a.denominator))
    state["exact"] = False
    scale = 10 ** max(60, 60 + len(str(a.denominator)) - len(str(a.numerator)))
    return Fraction(math.isqrt(a.numerator * scale * scale // a.denominator), scale)


def whole(value, most=10 ** 300):
    if value.denominator != 1 or abs(value) > most:
        raise ValueError(f"takes whole numbers up to {most if most < 10 ** 9 else '10**300'}")
    return value.numerator


def positive(value, most):
    if value < 0:
        raise ValueError("takes no negative numbers")
    return whole(value, most)


def rounded(state, value, places=Fraction(0)):
    return Fraction(round(value, whole(places, 1000)))


FUNCTIONS = {
    "abs": lambda state, a: abs(a),
    "min": lambda state, a, *more: min(a, *more) if more else a,
    "max": lambda state, a, *more: max(a, *more) if more else a,
    "sum": lambda state, *all: sum(all, Fraction(0)),
    "floor": lambda state, a: Fraction(math.floor(a)),
    "ceil": lambda state, a: Fraction(math.ceil(a)),
    "trunc": lambda state, a: Fraction(math.trunc(a)),
    "round": rounded,
    "gcd": lambda state, *all: Fraction(math.gcd(*map(whole, all))),
    "lcm": lambda state, *all: Fraction(math.lcm(*map(whole, all))),
    "factorial": lambda state, a: Fraction(math.factorial(positive(a, 1_500))),
    "comb": lambda state, n, k: Fraction(math.comb(positive(n, 2_000), positive(k, 2_000))),
    "sqrt": square_root,
}
