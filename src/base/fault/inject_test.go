//go:build faults

package fault

import "testing"

// A fault that could never happen is refused, so that no test waits for it in vain.
func TestParseRefusesWhatCannotHappen(t *testing.T) {
	for _, text := range []string{"sample=kill@1:2:3", "forward=slow:150@-1:-1:-1",
		"forward=burn:150@1:-1:-1", "loss=nan@0:1:0"} {
		if err := new(injection).parse(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "sample", "sample=kill", "sample=@1:2:3", "sampel=kill@1:2:3", "sample=kil@1:2:3",
		"sample=kill@1:2", "sample=kill@1:2:3:4",
		"sample=kill@1:2:3x", "forward=slow:x@1:2:3",
	} {
		if new(injection).parse(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
