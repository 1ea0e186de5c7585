package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Share says how many feature rows are kept in device memory. The zero value lets the run choose.
type Share struct {
	Set      bool
	Fraction float64 // of the rows, or
	Bytes    int     // of rows; used if Fraction is 0
}

// ParseShare reads "auto", a fraction such as 0.25, or bytes such as 8GB or 500MB.
func ParseShare(text string) (Share, error) {
	if text == "auto" {
		return Share{}, nil
	}
	for suffix, unit := range map[string]float64{"KB": 1e3, "MB": 1e6, "GB": 1e9} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err == nil && x >= 0 && x < 1e6 {
				return Share{Set: true, Bytes: int(x * unit)}, nil
			}
		}
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return Share{}, fmt.Errorf("%q is not auto, a fraction from 0 to 1, or bytes such as "+
			"8GB", text)
	}
	return Share{Set: true, Fraction: x}, nil
}

// rowShare is the text of a Share.
type rowShare struct{ bound[string] }

func share(field *string, fallback string) *rowShare {
	return &rowShare{bound[string]{field, fallback}}
}

func (s *rowShare) parse(text string) bool { *s.field = text; return true }
func (s *rowShare) kind() string           { return "a word" }
func (s *rowShare) limits() string {
	return "auto, a fraction such as 0.25, or bytes " +
		"such as 8GB"
}
func (s *rowShare) yaml() string { return yamlText(*s.field) }

func (s *rowShare) fault(name, _ string) string {
	if _, err := ParseShare(*s.field); err != nil {
		return fmt.Sprintf("%s: %v", name, err)
	}
	return ""
}
