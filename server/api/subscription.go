package api

import (
	"time"

	"postrider/catalog"
	"postrider/policy"
)

// SubscriptionView is an event subscription as it is shown: its effective settings without its secrets, and its state.
// Its own members replace those of the settings of the same name.
type SubscriptionView struct {
	Topic           string `json:"topic"`
	Name            string `json:"name"`
	EndpointBaseURL string `json:"endpointBaseUrl"`
	catalog.SubscriptionSpec
	Filter                    Filter                        `json:"filter"`
	DeadLetterDestination     catalog.DeadLetterDestination `json:"deadLetterDestination"`
	DeliveryAttributeMappings []DeliveryAttribute           `json:"deliveryAttributeMappings"`
	Signing                   Signing                       `json:"signing"`
	MinimumTLSVersionAllowed  policy.TLSVersion             `json:"minimumTlsVersionAllowed"`
	CertificateAuthorities    *string                       `json:"certificateAuthorities"`
	ClientCertificate         *policy.ClientCertificate     `json:"clientCertificate"`
	OAuth2                    *OAuth2                       `json:"oauth2"`
	ETag                      string                        `json:"etag"`
	ProvisioningState         catalog.ProvisioningState     `json:"provisioningState"`
	// Validation is the newest handshake; nil in lists.
	Validation *Validation `json:"validation"`
	Hold       *Hold       `json:"hold"`
	CreatedAt  time.Time   `json:"createdAt"`
	UpdatedAt  time.Time   `json:"updatedAt"`
}
