package config

import (
	"fmt"
	"strconv"
	"strings"

	"halognn/src/step/residence"
)

// parseShare reads "auto", a fraction such as 0.25, or bytes such as 8GB or 500MB.
func parseShare(text string) (residence.GPURows, error) {
	if text == "auto" {
		return residence.GPURows{}, nil
	}
	for suffix, unit := range map[string]float64{"KB": 1e3, "MB": 1e6, "GB": 1e9} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err == nil && x >= 0 && x < 1e6 {
				return residence.GPURows{Set: true, Bytes: int(x * unit)}, nil
			}
		}
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return residence.GPURows{}, fmt.Errorf("%q is not auto, a fraction from 0 to 1, or bytes "+
			"such as "+
			"8GB", text)
	}
	return residence.GPURows{Set: true, Fraction: x}, nil
}

// rowShare says how many rows lie in the memory of a GPU.
type rowShare struct{ bound[residence.GPURows] }

func share(field *residence.GPURows) *rowShare {
	return &rowShare{bound[residence.GPURows]{field, residence.GPURows{}}}
}

func (s *rowShare) parse(text string) bool {
	x, err := parseShare(text)
	*s.field = x
	return err == nil
}

func (s *rowShare) flat() string {
	switch x := *s.field; {
	case !x.Set:
		return "auto"
	case x.Bytes > 0:
		return fmt.Sprintf("%gMB", float64(x.Bytes)/1e6)
	default:
		return fmt.Sprint(x.Fraction)
	}
}

func (s *rowShare) kind() string   { return s.limits() }
func (s *rowShare) limits() string { return "auto, a fraction such as 0.25, or bytes such as 8GB" }
func (s *rowShare) yaml() string   { return s.flat() }
