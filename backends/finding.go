package backends

import "errors"

// Finding is one thing about a store that is not as a lock would have it. The method Check of a store
// returns them.
type Finding struct {
	Problem     Problem
	Detail      string // what was found
	Consequence string // what that means for locks, in a sentence
	Unsafe      bool   // two holders at once are possible in ordinary operation
}

func (f Finding) String() string { return f.Detail + ": " + f.Consequence }

// Problem names a kind of finding.
type Problem string

// Findings are what a check has found.
type Findings []Finding

// Err is nil unless a finding is unsafe and its problem not among those allowed.
func (fs Findings) Err(allowed ...Problem) error {
	var errs []error
next:
	for _, f := range fs {
		for _, a := range allowed {
			if f.Problem == a {
				continue next
			}
		}
		if f.Unsafe {
			errs = append(errs, errors.New(f.String()))
		}
	}
	return errors.Join(errs...)
}

// String is one line for each finding, the unsafe ones marked.
func (fs Findings) String() string {
	text := ""
	for _, f := range fs {
		text += "\n- "
		if f.Unsafe {
			text += "UNSAFE: "
		}
		text += f.String()
	}
	return text
}
