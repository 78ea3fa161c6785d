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

	"github.com/spokelet/spokelet/internal/quota"
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
	// Records lists and watches the clusters of the hub.
	Records Records
	Limits  Limits
	// Memory bounds what is held for one cluster and for all of them: of their
	// answers, beside the bounds of their callers, and of discovery while it is
	// read. Optional.
	Memory *quota.Memory
	// Streams are those of users in each cluster's session, of all doors. Optional.
	Streams *quota.Slots
	// Logger logs every refusal. Audit events are the hub's API server's
	// to write, and the clusters': all three share the audit id.
	Logger logr.Logger
}

// Limits bound what viewworks and clusters/proxy may cost.
type Limits struct {
	// ViewBytes is the greatest size of one cluster's answer, as it arrives and as
	// it is held, with the types and the places of its items. Default 8 MiB.
	ViewBytes int64
	// ViewTotalBytes is the greatest size of all responses to one ViewWork; each
	// cluster may use an equal share. Default 32 MiB.
	ViewTotalBytes int64
	// ViewConcurrency is how many clusters one ViewWork queries at once.
	// Default 16.
	ViewConcurrency int
	// ViewsInFlight is how many ViewWorks are served at once; further ones get
	// 429 Too Many Requests. Default 32.
	ViewsInFlight int
	// ViewsPerUser is how many of them one user may ask, and so are the next two of one user.
	// The service accounts of a namespace are one. Default 4.
	ViewsPerUser int
	// ViewHeldBytes is how much memory all answers take at once, while they are
	// read and until they are written; what does not fit gets 429 Too Many Requests.
	// Default 128 MiB.
	ViewHeldBytes int64
	// ViewHeldBytesPerUser is how much of it one user may cause. Default 48 MiB,
	// which is ViewTotalBytes and what reading two more answers takes.
	ViewHeldBytesPerUser int64
	// ViewBodyTimeout is how long a caller may take to send a ViewWork. It takes one
	// of ViewsPerUser meanwhile. Default 10 s.
	ViewBodyTimeout time.Duration
	// ViewTimeout is how long one cluster may take. Default 15 s.
	ViewTimeout time.Duration
	// ViewTotalTimeout is how long one ViewWork may take. It is less than what
	// the API machinery allows a create, so that the partial answer still
	// arrives. Default 30 s.
	ViewTotalTimeout time.Duration
	// ProxyRequests is how many requests to clusters/proxy one cluster is
	// carrying at once. A session has 1984 streams for them, for views and for
	// the node together. Default 1344.
	ProxyRequests int
	// ProxyRequestsPerUser is how many of them are one user's; further ones are
	// refused (429). Default 496, a quarter of the streams.
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
	setDefault(&l.ViewHeldBytesPerUser, 48<<20)
	setDefault(&l.ProxyRequests, 1344)
	setDefault(&l.ProxyRequestsPerUser, 496)
	setDefault(&l.ViewBodyTimeout, 10*time.Second)
	setDefault(&l.ViewTimeout, 15*time.Second)
	setDefault(&l.ViewTotalTimeout, 30*time.Second)
}

func setDefault[T int | int64 | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// Validate reports missing or contradictory fields.
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
		min(l.ViewBodyTimeout, l.ViewTimeout, l.ViewTotalTimeout) < 0 {
		return errors.New("live API: a limit is negative")
	}
	return nil
}
