package server

import (
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/server/api"
	"postrider/server/management"
)

// permission says who may use a route.
type permission int

const (
	anyone permission = iota
	// publishers show a topic's access key; the store asks for it together with the topic, see publish.
	publishers
	// viewers, operators and administrators show an API key or the admin token, or have signed in: see auth.Authenticator.
	viewers
	operators
	administrators
)

// role is the least that is needed; "" where no role is.
func (a permission) role() access.Role {
	return map[permission]access.Role{
		viewers: access.RoleViewer, operators: access.RoleOperator, administrators: access.RoleAdmin,
	}[a]
}

type route struct {
	method, path string
	access       permission
	handle       echo.HandlerFunc
}

// routes are what people and publishers use; machineRoutes is the rest.
func (s *Server) routes() []route {
	m := &management.Handlers{
		Parts: s.parts, Allow: s.options.AllowCIDR, AllowHTTP: s.options.AllowHTTP, Locations: s.options.DeadLetters,
		FilterLimits: s.options.FilterLimits, HeaderLimits: s.options.HeaderLimits,
		DefaultValidation: s.options.DefaultValidation, ValidationWait: s.options.ValidationWait,
		NoSignIn: s.options.NoSignIn,
	}
	v1 := api.ServerInterfaceWrapper{Handler: api.NewStrictHandler(m,
		[]api.StrictMiddlewareFunc{s.secrets, management.KnowBase(s.options.PublicURL), management.KnownParameters})}
	return slices.Concat(
		s.publishRoutes(), topicRoutes(&v1), subscriptionRoutes(&v1), deadLetterRoutes(&v1), deliveryRoutes(&v1),
		policyRoutes(&v1), accessRoutes(&v1),
		s.loginRoutes(&v1),
	)
}

// publishRoutes are for programs: whoever shows a topic's key, or has a validation URL.
func (s *Server) publishRoutes() []route {
	return []route{
		{http.MethodPost, publishRoute, publishers, s.publish},
		{http.MethodPost, publishToNamespaceRoute, publishers, s.publishToNamespace},
		{http.MethodGet, "/topics/:topic/eventsubscriptions/:subscription/validate", anyone, s.openValidationURL},
		{http.MethodPost, "/topics/:topic/eventsubscriptions/:subscription/validate", anyone, s.openValidationURL},
	}
}

// topicRoutes are those of topics.
func topicRoutes(v1 *api.ServerInterfaceWrapper) []route {
	return []route{
		{http.MethodGet, "/v1/topics", viewers, v1.ListTopics},
		{http.MethodPut, "/v1/topics/:topic", administrators, v1.PutTopic},
		{http.MethodGet, "/v1/topics/:topic", viewers, v1.GetTopic},
		{http.MethodDelete, "/v1/topics/:topic", administrators, v1.DeleteTopic},
		{http.MethodPost, "/v1/topics/:topic/listKeys", administrators, v1.ListTopicKeys},
		{http.MethodPost, "/v1/topics/:topic/regenerateKey", administrators, v1.RegenerateTopicKey},
		{http.MethodPost, "/v1/topics/:topic/testFilter", viewers, v1.TestFilter},
	}
}

// subscriptionRoutes are those of event subscriptions.
func subscriptionRoutes(v1 *api.ServerInterfaceWrapper) []route {
	return []route{
		{http.MethodGet, "/v1/topics/:topic/subscriptions", viewers, v1.ListSubscriptions},
		{http.MethodPut, "/v1/topics/:topic/subscriptions/:subscription", administrators, v1.PutSubscription},
		{http.MethodGet, "/v1/topics/:topic/subscriptions/:subscription", viewers, v1.GetSubscription},
		{http.MethodPatch, "/v1/topics/:topic/subscriptions/:subscription", administrators, v1.PatchSubscription},
		{http.MethodDelete, "/v1/topics/:topic/subscriptions/:subscription", administrators, v1.DeleteSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/pause", operators, v1.PauseSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/resume", operators, v1.ResumeSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/release", operators, v1.ReleaseSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/probe", operators, v1.ProbeSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/validate", operators, v1.ValidateSubscription},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/testFilter", viewers, v1.TestSubscriptionFilter},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/testDelivery", operators, v1.TestDelivery},
		{
			http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/getFullUrl", administrators,
			v1.RevealSubscriptionEndpoint,
		},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/" +
			"getDeliveryAttributes", administrators, v1.RevealSubscriptionHeaders},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/" +
			"getSigningSecrets", administrators, v1.GetSigningSecrets},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/" +
			"rotateSigningSecret", administrators, v1.RotateSigningSecret},
		{http.MethodPost, "/v1/topics/:topic/subscriptions/:subscription/redeliverEvents", operators, v1.RedeliverEvents},
	}
}

// deadLetterRoutes are those of dead letters, and of the operations that redeliver and purge many of them.
func deadLetterRoutes(v1 *api.ServerInterfaceWrapper) []route {
	return []route{
		{http.MethodGet, "/v1/deadLetters", viewers, v1.ListDeadLetters},
		{http.MethodPost, "/v1/deadLetters/redeliver", operators, v1.RedeliverDeadLetters},
		{http.MethodPost, "/v1/deadLetters/purge", operators, v1.PurgeDeadLetters},
		{http.MethodGet, "/v1/deadLetterExport", viewers, v1.ExportDeadLetters},
		{http.MethodGet, "/v1/deadLetters/:deadLetterId", viewers, v1.GetDeadLetter},
		{http.MethodDelete, "/v1/deadLetters/:deadLetterId", operators, v1.PurgeDeadLetter},
		{http.MethodPost, "/v1/deadLetters/:deadLetterId/redeliver", operators, v1.RedeliverDeadLetter},
		{http.MethodGet, "/v1/operations", viewers, v1.ListOperations},
		{http.MethodGet, "/v1/operations/:operationId", viewers, v1.GetOperation},
		{http.MethodPost, "/v1/operations/:operationId/cancel", operators, v1.CancelOperation},
	}
}

// deliveryRoutes are those of events, deliveries and batches.
func deliveryRoutes(v1 *api.ServerInterfaceWrapper) []route {
	return []route{
		{http.MethodPost, "/v1/topics/:topic/eraseSubject", operators, v1.EraseSubject},
		{http.MethodGet, "/v1/events", viewers, v1.ListEvents},
		{http.MethodGet, "/v1/activity", viewers, v1.ListActivity},
		{http.MethodGet, "/v1/events/:systemId", viewers, v1.GetEvent},
		{http.MethodPost, "/v1/events/:systemId/erase", operators, v1.EraseEvent},
		{http.MethodGet, "/v1/deliveries", viewers, v1.ListDeliveries},
		{http.MethodGet, "/v1/deliveries/:deliveryId", viewers, v1.GetDelivery},
		{http.MethodGet, "/v1/deliveries/:deliveryId/attempts", viewers, v1.ListDeliveryAttempts},
		{http.MethodPost, "/v1/deliveries/:deliveryId/cancel", operators, v1.CancelDelivery},
		{http.MethodPost, "/v1/deliveries/:deliveryId/retryNow", operators, v1.RetryDelivery},
		{http.MethodPost, "/v1/deliveries/:deliveryId/deadLetterNow", operators, v1.DeadLetterDelivery},
		{http.MethodGet, "/v1/batches", viewers, v1.ListBatches},
		{http.MethodGet, "/v1/batches/:batchId", viewers, v1.GetBatch},
		{http.MethodGet, "/v1/batches/:batchId/members", viewers, v1.ListBatchMembers},
		{http.MethodGet, "/v1/batches/:batchId/attempts", viewers, v1.ListBatchAttempts},
	}
}

// policyRoutes are those of retry policies.
func policyRoutes(v1 *api.ServerInterfaceWrapper) []route {
	return []route{
		{http.MethodGet, "/v1/policies", viewers, v1.ListPolicies},
		{http.MethodPut, "/v1/policies/:policy", administrators, v1.PutPolicy},
		{http.MethodGet, "/v1/policies/:policy", viewers, v1.GetPolicy},
		{http.MethodDelete, "/v1/policies/:policy", administrators, v1.DeletePolicy},
	}
}

// machineRoutes are for what watches the service, and for whoever wants to know what there is.
func (s *Server) machineRoutes() []route {
	return []route{
		{http.MethodGet, "/healthz", anyone, s.healthz},
		{http.MethodGet, "/readyz", anyone, s.readyz},
		{http.MethodGet, "/metrics", s.scrapers(), s.metrics},
		{http.MethodGet, "/openapi.yaml", anyone, s.specification},
		{http.MethodGet, "/openapi", anyone, s.reference.Answer},
	}
}

// accessRoutes are those that let others in, and that tell what they did.
func accessRoutes(v1 *api.ServerInterfaceWrapper) []route {
	return []route{
		{http.MethodGet, "/v1/audit", viewers, v1.ListAudit},
		{http.MethodGet, "/v1/apiKeys", administrators, v1.ListAPIKeys},
		{http.MethodPost, "/v1/apiKeys", administrators, v1.CreateAPIKey},
		{http.MethodGet, "/v1/apiKeys/:apiKey", administrators, v1.GetAPIKey},
		{http.MethodDelete, "/v1/apiKeys/:apiKey", administrators, v1.RevokeAPIKey},
		{http.MethodGet, "/v1/users", administrators, v1.ListUsers},
		{http.MethodPut, "/v1/users/:user", administrators, v1.PutUser},
		{http.MethodGet, "/v1/users/:user", administrators, v1.GetUser},
		{http.MethodDelete, "/v1/users/:user", administrators, v1.DeleteUser},
	}
}

// loginRoutes are those of postrider login. Logins begin, and are polled, without a credential.
func (s *Server) loginRoutes(v1 *api.ServerInterfaceWrapper) []route {
	return []route{
		{http.MethodPost, "/v1/logins", anyone, s.limitLogins(s.begun, v1.BeginLogin)},
		{http.MethodPost, "/v1/logins/poll", anyone, s.limitLogins(s.polled, v1.PollLogin)},
		{http.MethodGet, "/v1/me", viewers, v1.WhoAmI},
		{http.MethodDelete, "/v1/me/key", viewers, v1.RevokeMyKey},
	}
}

func (r route) addTo(e *echo.Echo, s *Server) {
	if needed := r.access.role(); needed != "" {
		e.Add(r.method, r.path, r.handle, s.finishes, s.auth.Permit(needed))
		return
	}
	e.Add(r.method, r.path, r.handle, s.finishes)
}
