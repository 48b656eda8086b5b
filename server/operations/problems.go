package operations

import (
	"context"
	"time"

	"github.com/google/uuid"

	"postrider/internal/query"
	"postrider/server/api"
)

type listProblemsRequest struct {
	Topic string `query:"topic"`
	// State of the problems. unresolved selects all but resolved ones, and all selects all.
	State string `query:"state" enum:"unresolved,failing,acknowledged,recovered,resolved,all" default:"unresolved"`
	// Length of the time span before now.
	Within int `query:"withinInMinutes" minimum:"1" maximum:"10080" default:"60"`
}

// Problems is what fails, by event subscription and outcome.
type Problems struct {
	// The problems, the newest failure first.
	Value []query.Problem `json:"value"`
}

// ListProblems lists what fails.
//
// Groups the failed attempts of the last minutes by event subscription and outcome, the newest failure first. A group
// is a problem, which can be acknowledged and resolved. Problems that have not recovered are listed even if their last
// failure is older.
//
// Lists at most 100 problems, each with a pending delivery or a dead letter as an example. From 360 minutes on it
// counts whole hours. A new failure changes the state of a problem within 15 s.
func (m *Handlers) ListProblems(ctx context.Context, r *listProblemsRequest) (*Problems, error) {
	filter := query.ProblemFilter{Topic: r.Topic, State: r.State}
	if filter.State == "all" {
		filter.State = ""
	}
	list, err := m.Parts.Reader.ReadProblems(ctx, filter, time.Duration(r.Within)*time.Minute)
	if err == nil && len(list) == 0 {
		err = m.Parts.Reader.CheckNames(ctx, r.Topic, "")
	}
	return &Problems{Value: api.Shown(list)}, err
}

// ProblemPath names a problem.
type ProblemPath struct {
	ID uuid.UUID `path:"problemId" example:"3f0c6c9e-5b1d-8a54-8e2f-6f0c1d2b3a45"`
}

// GetProblem reads a problem.
//
// Returns a problem with its counts of the last 24 hours. A problem is removed 7 days after its recovery or resolution,
// and with its event subscription.
func (m *Handlers) GetProblem(ctx context.Context, r *ProblemPath) (*query.Problem, error) {
	return m.Parts.Reader.ReadProblem(ctx, r.ID)
}

type acknowledgeProblemRequest struct {
	ProblemPath
	Body AcknowledgeSpec
}

// AcknowledgeSpec are the options of an acknowledgment. Either `until` or `forMinutes` is required.
type AcknowledgeSpec struct {
	// Until when alerts and notices leave the problem out, at most 30 days ahead.
	Until *time.Time `json:"until,omitempty"`
	// Instead of `until`: for so many minutes from now.
	ForMinutes *int `json:"forMinutes,omitempty" minimum:"1" maximum:"43200"`
	// Note for others, such as who works on it.
	Note string `json:"note,omitempty" maxLength:"1000"`
}

// AcknowledgeProblem acknowledges a problem.
//
// Until the given time, `postrider_problems` does not count the problem, and no beginning of it is notified. This also
// covers a recovery followed by new failures. Another acknowledgment replaces time and note.
func (m *Handlers) AcknowledgeProblem(ctx context.Context, r *acknowledgeProblemRequest) (*query.Problem, error) {
	var found problems
	var until time.Time
	switch spec := r.Body; {
	case (spec.Until == nil) == (spec.ForMinutes == nil):
		found.Value("until", "is required, or forMinutes instead")
	case spec.ForMinutes == nil:
		until = *spec.Until
	case *spec.ForMinutes < 1 || *spec.ForMinutes > maxAcknowledgedMinutes:
		found.Value("forMinutes", "must be between 1 and %d, not %d", maxAcknowledgedMinutes, *spec.ForMinutes)
	default:
		until = m.Parts.Clock.Now().Add(time.Duration(*spec.ForMinutes) * time.Minute)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if err := m.Parts.Operator.AcknowledgeProblem(ctx, r.ID, until, r.Body.Note); err != nil {
		return nil, err
	}
	return m.GetProblem(ctx, &r.ProblemPath)
}

const maxAcknowledgedMinutes = 30 * 24 * 60

type resolveProblemRequest struct {
	ProblemPath
	Body ResolveSpec `required:"false"`
}

// ResolveProblem resolves a problem.
//
// Ends the problem: lists hide it until an attempt fails with this outcome again. Deliveries and dead letters do not
// change. An acknowledgment ends.
func (m *Handlers) ResolveProblem(ctx context.Context, r *resolveProblemRequest) (*query.Problem, error) {
	if err := m.Parts.Operator.ResolveProblem(ctx, r.ID, r.Body.Note); err != nil {
		return nil, err
	}
	return m.GetProblem(ctx, &r.ProblemPath)
}
