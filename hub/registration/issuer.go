// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Issuer renews the certificates of live sessions. It is the tunnel's Issuer.
type Issuer struct {
	gate      *Gate
	authority Authority
}

// Issue signs a certificate (PEM chain and trust bundle) for the cluster whose
// session asks, if it may still have one and asks for nothing else. der is a
// PKCS#10 request. Errors wrap one of this package's sentinels.
func (i *Issuer) Issue(ctx context.Context, cluster identity.Cluster, der []byte) (chain, bundle []byte, err error) {
	chain, bundle, err = i.issue(ctx, cluster, der)
	if err != nil {
		i.gate.counters.admission.WithLabelValues(refusalReason(err)).Inc()
		return nil, nil, fmt.Errorf("renewal for cluster %q: %w", cluster.Name, err)
	}
	i.gate.counters.issued.WithLabelValues("renewal").Inc()
	return chain, bundle, nil
}

func (i *Issuer) issue(ctx context.Context, cluster identity.Cluster, der []byte) (chain, bundle []byte, err error) {
	csr, err := parseRequest(der)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRequest(csr, cluster); err != nil {
		return nil, nil, err
	}
	if _, err := i.gate.getAdmittedRecord(ctx, i.gate.config.Live, cluster); err != nil {
		return nil, nil, err
	}
	return i.authority.IssueCluster(cluster, csr)
}
