package server

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// access says who may use a route.
type access int

const (
	anyone access = iota
	// publishers show a topic's access key; the store asks for it together with the topic, see publish.
	publishers
	// administrators show the admin token.
	administrators
)

type route struct {
	method, path string
	access       access
	handle       echo.HandlerFunc
}

// routes are all there are.
func (s *Server) routes() []route {
	m := &management{
		store: s.store, allow: s.options.AllowCIDR, filterLimits: s.options.FilterLimits, headerLimits: s.options.HeaderLimits, locations: s.options.DeadLetters,
		defaultValidation: s.options.DefaultValidation, validationWait: s.options.ValidationWait,
	}
	v1 := ServerInterfaceWrapper{Handler: NewStrictHandler(m, []StrictMiddlewareFunc{s.secrets, s.knowBase})}
	return []route{
		{http.MethodPost, "/topics/:topic/api/events", publishers, s.publish},
		{http.MethodPost, "/topics/:operation", publishers, s.publishToNamespace},
		{http.MethodGet, "/topics/:topic/eventsubscriptions/:subscription/validate", anyone, s.openValidationURL},
		{http.MethodPost, "/topics/:topic/eventsubscriptions/:subscription/validate", anyone, s.openValidationURL},

		{http.MethodGet, "/v1/topics", administrators, v1.ListTopics},
		{http.MethodPut, "/v1/topics/:topic", administrators, v1.PutTopic},
		{http.MethodGet, "/v1/topics/:topic", administrators, v1.GetTopic},
		{http.MethodDelete, "/v1/topics/:topic", administrators, v1.DeleteTopic},
		{http.MethodPost, "/v1/topics/:topic/listKeys", administrators, v1.ListTopicKeys},
		{http.MethodPost, "/v1/topics/:topic/regenerateKey", administrators, v1.RegenerateTopicKey},
		{http.MethodPost, "/v1/topics/:topic/testFilter", administrators, v1.TestFilter},
		{http.MethodGet, "/v1/topics/:topic/subscriptions", administrators, v1.ListSubscriptions},
		{http.MethodPut, "/v1/topics/:topic/subscriptions/:subscription", administrators, v1.PutSubscription},
		{http.MethodGet, "/v1/topics/:topic/subscriptions/:subscription", administrators, v1.GetSubscription},
		{http.MethodPatch, "/v1/topics/:topic/subscriptions/:subscription", administrators, v1.PatchSubscription},
		{http.MethodDelete, "/v1/topics/:topic/subscriptions/:subscription", administrators, v1.DeleteSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/pause", administrators, v1.PauseSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/resume", administrators, v1.ResumeSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/release", administrators, v1.ReleaseSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/probe", administrators, v1.ProbeSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/validate", administrators, v1.ValidateSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/testFilter", administrators, v1.TestSubscriptionFilter},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/testDelivery", administrators, v1.TestDelivery},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/getFullUrl", administrators, v1.RevealSubscriptionEndpoint},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/getDeliveryAttributes", administrators, v1.RevealSubscriptionHeaders},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/getSigningSecrets", administrators, v1.GetSigningSecrets},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/rotateSigningSecret", administrators, v1.RotateSigningSecret},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/redeliverEvents", administrators, v1.RedeliverEvents},
		{http.MethodGet, "/v1/deadLetters", administrators, v1.ListDeadLetters},
		{http.MethodPost, "/v1/deadLetters/redeliver", administrators, v1.RedeliverDeadLetters},
		{http.MethodPost, "/v1/deadLetters/purge", administrators, v1.PurgeDeadLetters},
		{http.MethodGet, "/v1/deadLetters/:deadLetterId", administrators, v1.GetDeadLetter},
		{http.MethodDelete, "/v1/deadLetters/:deadLetterId", administrators, v1.PurgeDeadLetter},
		{http.MethodPost, "/v1/deadLetters/:deadLetterId/redeliver", administrators, v1.RedeliverDeadLetter},
		{http.MethodGet, "/v1/operations", administrators, v1.ListOperations},
		{http.MethodGet, "/v1/operations/:operationId", administrators, v1.GetOperation},
		{http.MethodPost, "/v1/operations/:operationId/cancel", administrators, v1.CancelOperation},
		{http.MethodPost, "/v1/topics/:topic/eraseSubject", administrators, v1.EraseSubject},
		{http.MethodPost, "/v1/events/:systemId/erase", administrators, v1.EraseEvent},
		{http.MethodGet, "/v1/deliveries/:deliveryId", administrators, v1.GetDelivery},
		{http.MethodGet, "/v1/deliveries/:deliveryId/attempts", administrators, v1.ListDeliveryAttempts},
		{http.MethodPost, "/v1/deliveries/:deliveryId/cancel", administrators, v1.CancelDelivery},
		{http.MethodPost, "/v1/deliveries/:deliveryId/retryNow", administrators, v1.RetryDelivery},
		{http.MethodPost, "/v1/deliveries/:deliveryId/deadLetterNow", administrators, v1.DeadLetterDelivery},
		{http.MethodGet, "/v1/policies", administrators, v1.ListPolicies},
		{http.MethodPut, "/v1/policies/:policy", administrators, v1.PutPolicy},
		{http.MethodGet, "/v1/policies/:policy", administrators, v1.GetPolicy},
		{http.MethodDelete, "/v1/policies/:policy", administrators, v1.DeletePolicy},

		{http.MethodGet, "/healthz", anyone, s.healthz},
		{http.MethodGet, "/readyz", anyone, s.readyz},
		{http.MethodGet, "/openapi.yaml", anyone, s.specification},
	}
}

func (r route) addTo(e *echo.Echo, s *Server) {
	if r.access == administrators {
		e.Add(r.method, r.path, r.handle, s.requireAdmin)
		return
	}
	e.Add(r.method, r.path, r.handle)
}
