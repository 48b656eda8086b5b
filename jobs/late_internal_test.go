package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/jobs/delivery"
	"postrider/policy"
)

func TestLateVerdict(t *testing.T) {
	t.Parallel()
	p, _ := policy.Builtin("ga-2021")
	tests := map[string]struct {
		result policy.Result
		action policy.VerdictAction
		why    string
	}{
		"success": {
			policy.Result{Status: 204}, policy.Delivered, "response after the ack timeout: 204: success",
		},
		"a failure":                   {policy.Result{Status: 503}, delivery.Note, "response after the ack timeout: 503"},
		"a failure never retried":     {policy.Result{Status: 400}, delivery.Note, "response after the ack timeout: 400"},
		"no success under the policy": {policy.Result{Status: 302}, delivery.Note, "response after the ack timeout: 302"},
		"the window is over":          {policy.Result{Err: policy.ErrorTimeout}, "", ""},
		"the connection broke":        {policy.Result{Err: policy.ErrorSocket}, "", ""},
		"interrupted":                 {policy.Result{}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict, why, ok := lateVerdict(&p, policy.KindWebhook, tt.result)
			require.Equal(t, tt.action != "", ok)
			require.Equal(t, tt.action, verdict.Action)
			require.Equal(t, tt.why, why)
		})
	}
}
