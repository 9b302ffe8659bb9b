package canon

import (
	"math"
	"math/big"
	"strconv"
)

// integer is any integer. When big is nil the value is arg, or -1-arg if
// negative; otherwise it is big, which then fits no such form.
type integer struct {
	negative bool
	arg      uint64
	big      *big.Int
}

// parseInteger converts an optional minus sign and digits that have been
// checked. Minus zero is zero: an integer has no sign of its own there.
func parseInteger(s []byte) integer {
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	if len(digits) > 19 { // 19 nines fit 64 bits
		x, _ := new(big.Int).SetString(string(s), 10)
		return fromBig(x)
	}
	var u uint64
	for _, c := range digits {
		u = u*10 + uint64(c-'0')
	}
	if len(digits) < len(s) && u > 0 {
		return integer{negative: true, arg: u - 1}
	}
	return integer{arg: u}
}

func fromBig(x *big.Int) integer {
	arg := x
	if x.Sign() < 0 {
		arg = new(big.Int).Not(x) // -1-x
	}
	if arg.IsUint64() {
		return integer{negative: x.Sign() < 0, arg: arg.Uint64()}
	}
	return integer{big: x}
}

// bigFromBytes is the big integer that is, or whose complement is, the bytes b.
// It is nil when that has more than [MaxDigits] digits.
func bigFromBytes(b []byte, negative bool) *big.Int {
	if len(b) > MaxDigits/2 { // a byte has more than two digits
		return nil
	}
	x := new(big.Int).SetBytes(b)
	if negative {
		x.Not(x)
	}
	if digits := len(new(big.Int).Abs(x).Text(10)); digits > MaxDigits {
		return nil
	}
	return x
}

func (v integer) appendDecimal(dst []byte) []byte {
	switch {
	case v.big != nil:
		return v.big.Append(dst, 10)
	case !v.negative:
		return strconv.AppendUint(dst, v.arg, 10)
	case v.arg == math.MaxUint64:
		return append(dst, "-18446744073709551616"...)
	}
	return strconv.AppendUint(append(dst, '-'), v.arg+1, 10)
}

func (v integer) appendCBOR(dst []byte) []byte {
	switch {
	case v.big == nil && v.negative:
		return appendHead(dst, majorNegint, v.arg)
	case v.big == nil:
		return appendHead(dst, majorUint, v.arg)
	case v.big.Sign() < 0:
		dst = appendHead(dst, majorTag, tagNegBig)
		return AppendBytes(dst, new(big.Int).Not(v.big).Bytes())
	}
	dst = appendHead(dst, majorTag, tagPosBig)
	return AppendBytes(dst, v.big.Bytes())
}
