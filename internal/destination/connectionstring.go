package destination

import (
	"fmt"
	"net/url"
	"strings"

	"postrider/internal/filter"
)

const (
	propertiesField = "destination.properties."
	connectionField = propertiesField + "connectionString"
)

// Normalize returns the destination as it is stored: connectionString divided into its parts, and addresses in one
// spelling. Call it before KeepSecrets, which compares addresses, and before Mistakes. It does not change d. No message
// repeats a part of the connection string.
func (d *Destination) Normalize() (*Destination, []filter.ValidationError) {
	if d.IsWebHook() || d.Properties == nil {
		return d, nil
	}
	made, p := *d, *d.Properties
	made.Properties = &p
	if _, azure := resources[d.EndpointType]; !azure {
		p.normalizeServers(d.EndpointType)
		return &made, nil
	}
	p.Endpoint = normalEndpoint(p.Endpoint)
	p.SharedAccessSignature = strings.TrimPrefix(p.SharedAccessSignature, "?")
	if p.ConnectionString == "" {
		return &made, nil
	}
	divide := divideBus
	if d.EndpointType == StorageQueue {
		divide = divideStorage
	}
	values, problem := members(p.ConnectionString)
	var parts Properties
	if problem == "" {
		parts, problem = divide(values)
	}
	if problem == "" {
		problem = p.fill(d.EndpointType, &parts)
	}
	if problem != "" {
		return d, []filter.ValidationError{{Field: connectionField, Message: problem}}
	}
	p.ConnectionString = ""
	return &made, nil
}

// fill sets the properties of a connection string, which must not contradict others.
func (p *Properties) fill(t Type, parts *Properties) (problem string) {
	for _, part := range []struct {
		name     string
		to, from *string
	}{
		{"endpoint", &p.Endpoint, &parts.Endpoint},
		{"entityName", &p.EntityName, &parts.EntityName},
		{"sharedAccessKeyName", &p.SharedAccessKeyName, &parts.SharedAccessKeyName},
		{"primaryKey", &p.PrimaryKey, &parts.PrimaryKey},
		{"sharedAccessSignature", &p.SharedAccessSignature, &parts.SharedAccessSignature},
	} {
		if *part.from == "" {
			continue
		}
		if *part.to != "" && *part.to != *part.from {
			return "contradicts " + part.name + ": omit one of them"
		}
		*part.to = *part.from
	}
	if p.ResourceID == "" {
		return ""
	}
	account, entity, err := resources[t].parse(p.ResourceID)
	if err != nil {
		return "" // Mistakes reports it
	}
	base, err := url.Parse(p.Endpoint)
	if err != nil {
		return ""
	}
	given, _, _ := strings.Cut(base.Hostname(), ".")
	if t == StorageQueue {
		given = storageAccount(base)
	}
	if !strings.EqualFold(given, account) || parts.EntityName != "" && entity != "" && parts.EntityName != entity {
		return "contradicts resourceId: omit one of them"
	}
	return ""
}

// members reads name=value;…. Names are compared without regard to case.
func members(text string) (values map[string]string, problem string) {
	values = map[string]string{}
	for member := range strings.SplitSeq(text, ";") {
		if member = strings.TrimSpace(member); member == "" {
			continue
		}
		name, value, found := strings.Cut(member, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if !found || name == "" {
			return nil, "must have the form name=value;name=value"
		}
		if _, repeated := values[name]; repeated {
			return nil, "must have each member once"
		}
		values[name] = strings.TrimSpace(value)
	}
	return values, ""
}

// divideBus reads a connection string of Service Bus, Event Hubs or Relay. Members that concern other protocols are
// ignored, as clients do.
func divideBus(m map[string]string) (parts Properties, problem string) {
	switch {
	case strings.EqualFold(m["usedevelopmentemulator"], "true"):
		return parts, "must not be an emulator's: the emulators of Service Bus and Event Hubs have no HTTP API; " +
			"that of Event Hubs can be a destination of type Kafka"
	case m["endpoint"] == "":
		return parts, "must have Endpoint=sb://NAMESPACE…;"
	case m["sharedaccesssignature"] == "" && (m["sharedaccesskeyname"] == "" || m["sharedaccesskey"] == ""):
		return parts, "must have SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature"
	}
	return Properties{
		Endpoint: normalEndpoint(m["endpoint"]), EntityName: m["entitypath"],
		SharedAccessKeyName: m["sharedaccesskeyname"], PrimaryKey: m["sharedaccesskey"],
		SharedAccessSignature: m["sharedaccesssignature"],
	}, ""
}

// The account of the storage emulators. Its key is published.
// Source: Microsoft, Configure a connection string, "the emulator account".
const (
	emulatorAccount = "devstoreaccount1"
	emulatorKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// divideStorage reads a connection string of a storage account.
func divideStorage(m map[string]string) (parts Properties, problem string) {
	if strings.EqualFold(m["usedevelopmentstorage"], "true") {
		proxy := m["developmentstorageproxyuri"]
		if proxy == "" {
			proxy = "http://127.0.0.1"
		}
		return Properties{
			Endpoint: normalEndpoint(strings.TrimSuffix(proxy, "/") + ":10001/" + emulatorAccount), PrimaryKey: emulatorKey,
		}, ""
	}
	account, protocol, suffix := m["accountname"], m["defaultendpointsprotocol"], m["endpointsuffix"]
	parts = Properties{
		Endpoint: normalEndpoint(m["queueendpoint"]), PrimaryKey: m["accountkey"],
		SharedAccessSignature: strings.TrimPrefix(m["sharedaccesssignature"], "?"),
	}
	if parts.Endpoint == "" && account != "" {
		if protocol == "" {
			protocol = "https"
		}
		if suffix == "" {
			suffix = "core.windows.net"
		}
		parts.Endpoint = normalEndpoint(fmt.Sprintf("%s://%s.queue.%s", protocol, account, suffix))
	}
	base, err := url.Parse(parts.Endpoint)
	switch {
	case parts.Endpoint == "":
		return parts, "must have AccountName or QueueEndpoint"
	case err != nil:
		return parts, "must have a URL as QueueEndpoint"
	case account != "" && !strings.EqualFold(account, storageAccount(base)):
		return parts, "must have the same account in AccountName and QueueEndpoint"
	case (parts.PrimaryKey == "") == (parts.SharedAccessSignature == ""):
		return parts, "must have AccountKey or SharedAccessSignature"
	}
	return parts, ""
}

// normalEndpoint writes sb://Host/, host and https://Host:443/ as https://host. What is no URL stays as it is.
func normalEndpoint(endpoint string) string {
	text := strings.TrimSpace(endpoint)
	if text == "" {
		return ""
	}
	if scheme, rest, found := strings.Cut(text, "://"); !found {
		text = "https://" + text
	} else if strings.EqualFold(scheme, "sb") {
		text = "https://" + rest
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return endpoint
	}
	u.Host = strings.ToLower(u.Host)
	if u.Scheme == "https" {
		u.Host = strings.TrimSuffix(u.Host, ":443")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u.String()
}
