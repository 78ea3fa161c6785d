// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"fmt"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
)

// The jobs, in their order.
const (
	Job1 = "JOB1"
	Job2 = "JOB2"
)

// The states of a job, in their order.
const (
	Requested = "REQUESTED"
	Started   = "STARTED"
	Completed = "COMPLETED"
)

// A Step is a job in one of its states.
type Step struct{ Job, State string }

// First is the step in which a director makes a request.
var First = Step{Job1, Requested}

// At returns the step in which a request is.
func At(r *v1.RequestState) Step { return Step{r.Spec.Job, r.Spec.State} }

// String is how logs and errors name a step.
func (s Step) String() string { return s.Job + " " + s.State }

// An Action is what a party does about a step.
type Action int

const (
	// Wait leaves the turn to the other party.
	Wait Action = iota
	// Enter enters the next step.
	Enter
	// Finish ends the flow: there is no next step.
	Finish
	// Refuse leaves the request alone, as its job or state is not known.
	Refuse
)

// A Decision is an action, with the step to enter or the reason to refuse.
type Decision struct {
	Action Action
	Next   Step   // of Enter
	Reason string // of Refuse
}

// Worker decides for the worker, which executes jobs.
func Worker(at Step) Decision {
	if reason := unknown(at); reason != "" {
		return Decision{Action: Refuse, Reason: reason}
	}
	switch at.State {
	case Requested:
		return Decision{Action: Enter, Next: Step{at.Job, Started}}
	case Started:
		return Decision{Action: Enter, Next: Step{at.Job, Completed}}
	default:
		return Decision{Action: Wait}
	}
}

// Director decides for the director, which requests the jobs one after the other.
func Director(at Step) Decision {
	if reason := unknown(at); reason != "" {
		return Decision{Action: Refuse, Reason: reason}
	}
	switch at {
	case Step{Job1, Completed}:
		return Decision{Action: Enter, Next: Step{Job2, Requested}}
	case Step{Job2, Completed}:
		return Decision{Action: Finish}
	default:
		return Decision{Action: Wait}
	}
}

func unknown(at Step) string {
	if at.Job != Job1 && at.Job != Job2 {
		return fmt.Sprintf("unknown job %q", at.Job)
	}
	if at.State != Requested && at.State != Started && at.State != Completed {
		return fmt.Sprintf("unknown state %q", at.State)
	}
	return ""
}
