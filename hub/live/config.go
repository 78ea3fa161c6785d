// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"net"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
)

// Config is what the live API server is made of.
type Config struct {
	// Listener accepts the connections of the hub's API server. The server
	// closes it.
	Listener net.Listener
	// Certificate is what the server shows; see ServingCertificate.
	Certificate dynamiccertificates.CertKeyContentProvider
	// Rest reaches the hub's API server, which says who a caller is
	// (TokenReview, the ConfigMap extension-apiserver-authentication) and what
	// the caller may do (SubjectAccessReview).
	Rest *rest.Config
	// Sessions gives the sessions of clusters.
	Sessions Sessions
	// Records tells which clusters there are.
	Records Records
	Limits  Limits
	// Logger is told of every refusal. Audit events are the hub's API server's
	// to write, and the clusters': all three share the audit id.
	Logger logr.Logger
}

// Limits bound what viewworks and clusters/proxy may cost.
type Limits struct {
	// ViewBytes is the greatest size of one cluster's answer. Default 8 MiB.
	ViewBytes int64
	// ViewTotalBytes is the greatest size of all answers to one question; each
	// cluster may use an equal share. Default 32 MiB.
	ViewTotalBytes int64
	// ViewConcurrency is how many clusters one question asks at once.
	// Default 16.
	ViewConcurrency int
	// ViewsInFlight is how many questions are answered at once; further ones
	// are told to come again (429). Default 32.
	ViewsInFlight int
	// ViewsPerUser is how many of them one user may ask. Default 4.
	ViewsPerUser int
	// ViewHeldBytes is how much of all answers is held at once, as it came from
	// the clusters; what does not fit is told to come again. While an answer is
	// written it takes about three times as much. Default 128 MiB.
	ViewHeldBytes int64
	// ViewHeldBytesPerUser is how much of it one user may cause. Default 32 MiB.
	ViewHeldBytesPerUser int64
	// ViewTimeout is how long one cluster may take. Default 15 s.
	ViewTimeout time.Duration
	// ViewTotalTimeout is how long one question may take. It is less than what
	// the API machinery allows a create, so that the partial answer still
	// arrives. Default 30 s.
	ViewTotalTimeout time.Duration
	// ProxyRequests is how many requests to clusters/proxy one cluster is
	// carrying at once. A session has 1984 streams for them, for views and for
	// the node together. Default 1920.
	ProxyRequests int
	// ProxyRequestsPerUser is how many of them are one user's; further ones are
	// told to come again (429). Default 496, a quarter of the streams.
	ProxyRequestsPerUser int
}

// Default fills what was left empty.
func (l *Limits) Default() {
	setDefault(&l.ViewBytes, 8<<20)
	setDefault(&l.ViewTotalBytes, 32<<20)
	setDefault(&l.ViewConcurrency, 16)
	setDefault(&l.ViewsInFlight, 32)
	setDefault(&l.ViewsPerUser, 4)
	setDefault(&l.ViewHeldBytes, 128<<20)
	setDefault(&l.ViewHeldBytesPerUser, 32<<20)
	setDefault(&l.ProxyRequests, 1920)
	setDefault(&l.ProxyRequestsPerUser, 496)
	setDefault(&l.ViewTimeout, 15*time.Second)
	setDefault(&l.ViewTotalTimeout, 30*time.Second)
}

func setDefault[T int | int64 | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// Validate says what is missing or contradicts.
func (c *Config) Validate() error {
	switch {
	case c.Listener == nil:
		return errors.New("live API: listener is missing")
	case c.Certificate == nil:
		return errors.New("live API: certificate is missing")
	case c.Rest == nil:
		return errors.New("live API: rest config is missing")
	case c.Sessions == nil || c.Records == nil:
		return errors.New("live API: sessions or records are missing")
	}
	l := c.Limits
	if min(l.ViewBytes, l.ViewTotalBytes, l.ViewHeldBytes, l.ViewHeldBytesPerUser) < 0 ||
		min(l.ViewConcurrency, l.ViewsInFlight, l.ViewsPerUser, l.ProxyRequests, l.ProxyRequestsPerUser) < 0 ||
		min(l.ViewTimeout, l.ViewTotalTimeout) < 0 {
		return errors.New("live API: a limit is negative")
	}
	return nil
}
