package config

import (
	"fmt"
	"strconv"

	"halognn/src/rows/policy"
)

// cost is a number from 0 to 1, or the word auto, for which the field is policy.MeasuredPeerCost.
type cost struct{ bound[float64] }

func costOrAuto(field *float64) *cost {
	return &cost{bound[float64]{field, policy.MeasuredPeerCost}}
}

func (c *cost) parse(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	if text == "auto" {
		x, err = policy.MeasuredPeerCost, nil
	} else if x == policy.MeasuredPeerCost {
		return false
	}
	*c.field = x
	return err == nil
}

func (c *cost) flat() string {
	if *c.field == policy.MeasuredPeerCost {
		return "auto"
	}
	return fmt.Sprint(*c.field)
}

func (c *cost) kind() string   { return "a number or auto" }
func (c *cost) limits() string { return "auto, or 0 to 1" }
func (c *cost) yaml() string   { return c.flat() }

func (c *cost) fault(name, brief string) string {
	if x := *c.field; x == policy.MeasuredPeerCost || x >= 0 && x <= 1 {
		return ""
	}
	return fmt.Sprintf("%s is %g; it must be %s: %s", name, *c.field, c.limits(), brief)
}
