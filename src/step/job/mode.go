package job

import (
	"fmt"

	"halognn/src/topology/sample"
)

// Mode is what a job must know about a parallel mode, the way in which ranks share a step. Package
// parallel has the table of all modes. In the zero Mode every rank trains minibatches of its own.
type Mode struct {
	Name string // the word for parallel.mode
	// Sharing says which ranks train each minibatch together; their seeds form one stream.
	Sharing sample.Sharing
	// Columns says that every rank holds some columns of all feature rows, instead of all columns
	// of its own vertices' rows. Then Sharing must be sample.Alone.
	Columns bool
}

// Refusal is a combination of settings that a job must not have.
type Refusal struct {
	Key, Value string // key and value of the refused setting
	What       string // the setting that Key cannot be combined with
	Why        string
	Cure       string // settings to choose instead of What
	Other      string // other value of Key, which can be chosen instead; "" if there is none
}

func (r Refusal) Error() string {
	if r.Other == "" {
		return fmt.Sprintf("%s has %s, which cannot be combined with %s, because %s; choose %s",
			r.Key, r.Value, r.What, r.Why, r.Cure)
	}
	return fmt.Sprintf("%s is %s, which cannot be combined with %s, because %s; choose %s, or "+
		"%s=%s", r.Key, r.Value, r.What, r.Why, r.Cure, r.Key, r.Other)
}
