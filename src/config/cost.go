package config

import (
	"fmt"
	"strconv"

	"halognn/src/policy"
)

// ParseCost reads "auto", which is policy.MeasuredPeerCost, or a number from 0 to 1.
func ParseCost(text string) (float64, error) {
	if text == "auto" {
		return policy.MeasuredPeerCost, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= 1) {
		return 0, fmt.Errorf("%q is not auto or a number from 0 to 1", text)
	}
	return x, nil
}

// cost is a number from 0 to 1, or auto.
type cost struct{ bound[string] }

func costOrAuto(field *string) *cost { return &cost{bound[string]{field, "auto"}} }

func (c *cost) parse(text string) bool { *c.field = text; return true }
func (c *cost) kind() string           { return "a number or auto" }
func (c *cost) limits() string         { return "auto, or 0 to 1" }
func (c *cost) yaml() string           { return yamlText(*c.field) }

func (c *cost) fault(name, brief string) string {
	if _, err := ParseCost(*c.field); err != nil {
		return fmt.Sprintf("%s: %v: %s", name, err, brief)
	}
	return ""
}
