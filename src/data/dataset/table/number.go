package table

import (
	"strconv"
)

// ParseInt reads a decimal integer with an optional sign. The result ok is false for any other
// text, and for numbers that an int64 cannot hold.
func ParseInt(b []byte) (x int64, ok bool) {
	digits := b
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 18 { // up to 18 digits cannot overflow
		if len(digits) > 18 {
			x, err := strconv.ParseInt(string(b), 10, 64)
			return x, err == nil
		}
		return 0, false
	}
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false
		}
		x = x*10 + int64(c-'0')
	}
	if b[0] == '-' {
		x = -x
	}
	return x, true
}

// pow10 holds the powers of ten that float64 represents exactly.
var pow10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13,
	1e14, 1e15, 1e16, 1e17,
	1e18, 1e19, 1e20, 1e21, 1e22}

// ParseFloat reads a decimal number, nan or inf, and rounds correctly. If float64 holds both the
// digits and the power of ten exactly, which is nearly always so, one multiplication or division
// gives the result (Clinger, PLDI 1990). Otherwise strconv reads the number.
func ParseFloat(b []byte) (x float64, ok bool) {
	i := 0
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		i = 1
	}
	mantissa, digits, exponent := uint64(0), 0, 0
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		mantissa = mantissa*10 + uint64(b[i]-'0')
		digits++
	}
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && b[i]-'0' <= 9; i++ {
			mantissa = mantissa*10 + uint64(b[i]-'0')
			digits++
			exponent--
		}
	}
	if digits == 0 || digits > 19 { // without digits it may be nan or inf; 20 digits may overflow
		return slowFloat(b)
	}
	if i < len(b) {
		if b[i]|0x20 != 'e' || len(b)-i > 6 {
			return slowFloat(b)
		}
		e, ok := ParseInt(b[i+1:])
		if !ok {
			return 0, false
		}
		exponent += int(e)
	}
	if mantissa >= 1<<53 || exponent < -22 || exponent > 22 {
		return slowFloat(b)
	}
	x = float64(mantissa)
	if exponent < 0 {
		x /= pow10[-exponent]
	} else {
		x *= pow10[exponent]
	}
	if b[0] == '-' {
		x = -x
	}
	return x, true
}

func slowFloat(b []byte) (float64, bool) {
	// strconv also accepts hexadecimal digits and underscores, which are rejected here
	for _, c := range b {
		if c == '_' || c|0x20 == 'x' || c|0x20 == 'p' {
			return 0, false
		}
	}
	x, err := strconv.ParseFloat(string(b), 64)
	return x, err == nil
}
