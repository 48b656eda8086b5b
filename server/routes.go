package server

import (
	"net/http"
	"slices"
	"strings"

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

// scope is the least scope of an API key that is needed, as the OpenAPI document has it.
func (a permission) scope() string {
	return map[permission]string{
		anyone: "none", publishers: "publish", viewers: "read", operators: "operate", administrators: "admin",
	}[a]
}

// route is one line of the access table: who may use an operation, where it is, and what handles it.
type route struct {
	method, path string
	access       permission
	api.Route
}

// byHand is a route whose handler reads the request and writes the response itself.
func byHand(handle echo.HandlerFunc) api.Route { return api.Route{Handle: handle} }

// routes are what people and publishers use; machineRoutes is the rest.
func (s *Server) routes() []route {
	m := &management.Handlers{
		Parts: s.parts, Allow: s.options.AllowCIDR, AllowHTTP: s.options.AllowHTTP, Locations: s.options.DeadLetters,
		FilterLimits: s.options.FilterLimits, HeaderLimits: s.options.HeaderLimits,
		DefaultValidation: s.options.DefaultValidation, ValidationWait: s.options.ValidationWait,
		NoSignIn: s.options.NoSignIn, Log: s.log,
	}
	return slices.Concat(
		s.publishRoutes(), topicRoutes(m), subscriptionRoutes(m), deadLetterRoutes(m), deliveryRoutes(m),
		policyRoutes(m), accessRoutes(m), s.loginRoutes(m),
	)
}

// publishRoutes are for programs: whoever shows a topic's key, or has a validation URL.
func (s *Server) publishRoutes() []route {
	return []route{
		{http.MethodPost, publishRoute, publishers, byHand(s.publish)},
		{http.MethodPost, publishToNamespaceRoute, publishers, byHand(s.publishToNamespace)},
		{http.MethodGet, "/topics/:topic/eventsubscriptions/:subscription/validate", anyone, byHand(s.openValidationURL)},
		{http.MethodPost, "/topics/:topic/eventsubscriptions/:subscription/validate", anyone, byHand(s.openValidationURL)},
	}
}

const subscriptionPath = "/v1/topics/:topic/subscriptions/:subscription"

// topicRoutes are those of topics.
func topicRoutes(m *management.Handlers) []route {
	return []route{
		{http.MethodGet, "/v1/topics", viewers, api.Handle("listTopics", m.ListTopics)},
		{http.MethodPut, "/v1/topics/:topic", administrators, api.Handle("putTopic", m.PutTopic, 409)},
		{http.MethodGet, "/v1/topics/:topic", viewers, api.Handle("getTopic", m.GetTopic, 404)},
		{http.MethodDelete, "/v1/topics/:topic", administrators, api.Handle("deleteTopic", m.DeleteTopic, 404, 409)},
		{http.MethodPost, "/v1/topics/:topic/listKeys", administrators, api.Handle("listTopicKeys", m.ListTopicKeys,
			404, 409)},
		{http.MethodPost, "/v1/topics/:topic/regenerateKey", administrators, api.Handle("regenerateTopicKey",
			m.RegenerateTopicKey, 404, 409)},
		{http.MethodPost, "/v1/topics/:topic/testFilter", viewers, api.Handle("testFilter", m.TestFilter, 404)},
	}
}

// subscriptionRoutes are those of event subscriptions.
func subscriptionRoutes(m *management.Handlers) []route {
	return []route{
		{http.MethodGet, "/v1/topics/:topic/subscriptions", viewers, api.Handle("listSubscriptions",
			m.ListSubscriptions, 404)},
		{http.MethodPut, subscriptionPath, administrators, api.Handle("putSubscription", m.PutSubscription, 404, 409)},
		{http.MethodGet, subscriptionPath, viewers, api.Handle("getSubscription", m.GetSubscription, 404)},
		{http.MethodPatch, subscriptionPath, administrators, api.Handle("patchSubscription", m.PatchSubscription, 404, 409)},
		{http.MethodDelete, subscriptionPath, administrators, api.Handle("deleteSubscription", m.DeleteSubscription, 404)},
		{http.MethodPost, subscriptionPath + "/pause", operators, api.Handle("pauseSubscription", m.PauseSubscription, 404)},
		{http.MethodPost, subscriptionPath + "/resume", operators, api.Handle("resumeSubscription",
			m.ResumeSubscription, 404)},
		{http.MethodPost, subscriptionPath + "/release", operators, api.Handle("releaseSubscription", m.ReleaseSubscription,
			404, 409)},
		{http.MethodPost, subscriptionPath + "/probe", operators, api.Handle("probeSubscription", m.ProbeSubscription,
			404, 409)},
		{http.MethodPost, subscriptionPath + "/validate", operators, api.Handle("validateSubscription",
			m.ValidateSubscription, 404, 409)},
		{http.MethodPost, subscriptionPath + "/testFilter", viewers, api.Handle("testSubscriptionFilter",
			m.TestSubscriptionFilter, 404)},
		{
			http.MethodPost, subscriptionPath + "/testDelivery", operators,
			api.Handle("testDelivery", m.TestDelivery, 404, 409),
		},
		{http.MethodPost, subscriptionPath + "/getFullUrl", administrators, api.Handle("revealSubscriptionEndpoint",
			m.RevealSubscriptionEndpoint, 404)},
		{http.MethodPost, subscriptionPath + "/getDeliveryAttributes", administrators, api.Handle("revealSubscriptionHeaders",
			m.RevealSubscriptionHeaders, 404)},
		{http.MethodPost, subscriptionPath + "/getSigningSecrets", administrators, api.Handle("getSigningSecrets",
			m.GetSigningSecrets, 404)},
		{http.MethodPost, subscriptionPath + "/rotateSigningSecret", administrators, api.Handle("rotateSigningSecret",
			m.RotateSigningSecret, 404, 409)},
		{http.MethodPost, subscriptionPath + "/redeliverEvents", operators, api.Handle("redeliverEvents", m.RedeliverEvents,
			404, 409)},
	}
}

// deadLetterRoutes are those of dead letters, and of the operations that redeliver and purge many of them.
func deadLetterRoutes(m *management.Handlers) []route {
	return []route{
		{http.MethodGet, "/v1/deadLetters", viewers, api.Handle("listDeadLetters", m.ListDeadLetters)},
		{
			http.MethodPost, "/v1/deadLetters/redeliver", operators,
			api.Handle("redeliverDeadLetters", m.RedeliverDeadLetters, 409),
		},
		{http.MethodPost, "/v1/deadLetters/purge", operators, api.Handle("purgeDeadLetters", m.PurgeDeadLetters)},
		{http.MethodGet, "/v1/deadLetterExport", viewers, api.Handle("exportDeadLetters", m.ExportDeadLetters)},
		{http.MethodGet, "/v1/deadLetters/:deadLetterId", viewers, api.Handle("getDeadLetter", m.GetDeadLetter, 404)},
		{
			http.MethodDelete, "/v1/deadLetters/:deadLetterId", operators,
			api.Handle("purgeDeadLetter", m.PurgeDeadLetter, 404),
		},
		{
			http.MethodPost, "/v1/deadLetters/:deadLetterId/redeliver", operators,
			api.Handle("redeliverDeadLetter", m.RedeliverDeadLetter, 404, 409),
		},
		{http.MethodGet, "/v1/operations", viewers, api.Handle("listOperations", m.ListOperations)},
		{http.MethodGet, "/v1/operations/:operationId", viewers, api.Handle("getOperation", m.GetOperation, 404)},
		{
			http.MethodPost, "/v1/operations/:operationId/cancel", operators,
			api.Handle("cancelOperation", m.CancelOperation, 404),
		},
	}
}

// deliveryRoutes are those of events, deliveries and batches.
func deliveryRoutes(m *management.Handlers) []route {
	return []route{
		{
			http.MethodPost, "/v1/topics/:topic/eraseSubject", operators,
			api.Handle("eraseSubject", m.EraseSubject, 404, 409),
		},
		{http.MethodGet, "/v1/events", viewers, api.Handle("listEvents", m.ListEvents)},
		{http.MethodGet, "/v1/activity", viewers, api.Handle("listActivity", m.ListActivity)},
		{http.MethodGet, "/v1/events/:systemId", viewers, api.Handle("getEvent", m.GetEvent, 404)},
		{http.MethodPost, "/v1/events/:systemId/erase", operators, api.Handle("eraseEvent", m.EraseEvent, 404, 409)},
		{http.MethodGet, "/v1/deliveries", viewers, api.Handle("listDeliveries", m.ListDeliveries)},
		{http.MethodGet, "/v1/deliveries/:deliveryId", viewers, api.Handle("getDelivery", m.GetDelivery, 404)},
		{
			http.MethodGet, "/v1/deliveries/:deliveryId/attempts", viewers,
			api.Handle("listDeliveryAttempts", m.ListDeliveryAttempts, 404),
		},
		{
			http.MethodPost, "/v1/deliveries/:deliveryId/cancel", operators,
			api.Handle("cancelDelivery", m.CancelDelivery, 404, 409),
		},
		{
			http.MethodPost, "/v1/deliveries/:deliveryId/retryNow", operators,
			api.Handle("retryDelivery", m.RetryDelivery, 404, 409),
		},
		{
			http.MethodPost, "/v1/deliveries/:deliveryId/deadLetterNow", operators,
			api.Handle("deadLetterDelivery", m.DeadLetterDelivery, 404, 409),
		},
		{http.MethodGet, "/v1/batches", viewers, api.Handle("listBatches", m.ListBatches)},
		{http.MethodGet, "/v1/batches/:batchId", viewers, api.Handle("getBatch", m.GetBatch, 404)},
		{http.MethodGet, "/v1/batches/:batchId/members", viewers, api.Handle("listBatchMembers", m.ListBatchMembers, 404)},
		{
			http.MethodGet, "/v1/batches/:batchId/attempts", viewers,
			api.Handle("listBatchAttempts", m.ListBatchAttempts, 404),
		},
	}
}

// policyRoutes are those of retry policies.
func policyRoutes(m *management.Handlers) []route {
	return []route{
		{http.MethodGet, "/v1/policies", viewers, api.Handle("listPolicies", m.ListPolicies)},
		{http.MethodPut, "/v1/policies/:policy", administrators, api.Handle("putPolicy", m.PutPolicy, 409)},
		{http.MethodGet, "/v1/policies/:policy", viewers, api.Handle("getPolicy", m.GetPolicy, 404)},
		{http.MethodDelete, "/v1/policies/:policy", administrators, api.Handle("deletePolicy", m.DeletePolicy, 404, 409)},
	}
}

// machineRoutes are for what watches the service, and for whoever wants to know what there is.
func (s *Server) machineRoutes() []route {
	return []route{
		{http.MethodGet, "/healthz", anyone, byHand(s.healthz)},
		{http.MethodGet, "/readyz", anyone, byHand(s.readyz)},
		{http.MethodGet, "/metrics", s.scrapers(), byHand(s.metrics)},
		{http.MethodGet, "/openapi.yaml", anyone, byHand(s.specification)},
		{http.MethodGet, "/openapi", anyone, byHand(s.reference.Answer)},
	}
}

// accessRoutes are those that let others in, and that tell what they did.
func accessRoutes(m *management.Handlers) []route {
	return []route{
		{http.MethodGet, "/v1/audit", viewers, api.Handle("listAudit", m.ListAudit)},
		{http.MethodGet, "/v1/apiKeys", administrators, api.Handle("listAPIKeys", m.ListAPIKeys)},
		{http.MethodPost, "/v1/apiKeys", administrators, api.Handle("createAPIKey", m.CreateAPIKey, 404, 409)},
		{http.MethodGet, "/v1/apiKeys/:apiKey", administrators, api.Handle("getAPIKey", m.GetAPIKey, 404)},
		{http.MethodDelete, "/v1/apiKeys/:apiKey", administrators, api.Handle("revokeAPIKey", m.RevokeAPIKey, 404)},
		{http.MethodGet, "/v1/users", administrators, api.Handle("listUsers", m.ListUsers)},
		{http.MethodPut, "/v1/users/:user", administrators, api.Handle("putUser", m.PutUser, 409)},
		{http.MethodGet, "/v1/users/:user", administrators, api.Handle("getUser", m.GetUser, 404)},
		{http.MethodDelete, "/v1/users/:user", administrators, api.Handle("deleteUser", m.DeleteUser, 404, 409)},
	}
}

// loginRoutes are those of postrider login. Logins begin, and are polled, without a credential.
func (s *Server) loginRoutes(m *management.Handlers) []route {
	return []route{
		{http.MethodPost, "/v1/logins", anyone, s.limitLogins(s.begun, api.Handle("beginLogin", m.BeginLogin, 409))},
		{http.MethodPost, "/v1/logins/poll", anyone, s.limitLogins(s.polled, api.Handle("pollLogin", m.PollLogin, 404))},
		{http.MethodGet, "/v1/me", viewers, api.Handle("whoAmI", m.WhoAmI)},
		{http.MethodDelete, "/v1/me/key", viewers, api.Handle("revokeMyKey", m.RevokeMyKey, 409)},
	}
}

func (r route) addTo(e *echo.Echo, s *Server) {
	middleware := []echo.MiddlewareFunc{s.finishes}
	if needed := r.access.role(); needed != "" {
		middleware = append(middleware, s.auth.Permit(needed))
	}
	if strings.HasPrefix(r.path, "/v1/") {
		middleware = append(middleware, management.KnowBase(s.options.PublicURL))
	}
	e.Add(r.method, r.path, r.Handle, middleware...)
}
