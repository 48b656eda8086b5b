package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

func TestCombine(t *testing.T) {
	t.Parallel()
	at := func(seconds int) policy.Verdict {
		return policy.Verdict{Action: policy.Retry, At: time.Unix(int64(seconds), 0)}
	}
	delivered := policy.Verdict{Action: policy.Delivered}
	dead := policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonTimeToLiveExceeded}
	drop := policy.Verdict{Action: policy.Drop, Reason: policy.ReasonHTTPBadRequest}
	for name, row := range map[string]struct {
		verdicts []policy.Verdict
		want     policy.Verdict
		separate []int
	}{
		"all delivered":                   {[]policy.Verdict{delivered, delivered}, delivered, nil},
		"all at the same time":            {[]policy.Verdict{at(5), at(5), at(5)}, at(5), nil},
		"the latest time wins":            {[]policy.Verdict{at(5), at(9), at(7), at(9)}, at(9), []int{0, 2}},
		"one has no time left":            {[]policy.Verdict{dead, at(9)}, at(9), []int{0}},
		"the last has no time left":       {[]policy.Verdict{at(9), dead}, at(9), []int{1}},
		"each dead letter is its own row": {[]policy.Verdict{dead, dead}, dead, []int{0, 1}},
		"a drop needs no row":             {[]policy.Verdict{drop, drop}, drop, nil},
		"all end, one for a different reason": {
			[]policy.Verdict{drop, {Action: policy.Drop, Reason: policy.ReasonTimeToLiveExceeded}, drop}, drop, []int{1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, separate := combine(row.verdicts)
			require.Equal(t, row.want, got)
			require.Equal(t, row.separate, separate)
		})
	}
}
