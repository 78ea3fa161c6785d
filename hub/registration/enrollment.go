// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"crypto/x509"
	"errors"
	"fmt"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/clustername"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// errRequest means that a request is malformed, whatever the hub knows.
var errRequest = errors.New("malformed request")

// maxRequest bounds a certificate request: one with an RSA key of 8192 bits has
// about 2.2 KiB.
const maxRequest = 8 << 10

// enrollment is an enrolment request, checked as far as that goes without
// looking anything up.
type enrollment struct {
	cluster string
	token   token.Token
	// tokenErr is kept for later: a token that is no token is refused in the
	// same words as one that is unknown.
	tokenErr error
	csr      *x509.CertificateRequest
	key      token.Hash
	uid      string
	// hasToken: the token was found valid before anything was looked up.
	hasToken bool
}

func (e *Enroller) parseEnrollRequest(request *rpcv1.EnrollRequest) (enrollment, error) {
	if len(request.GetToken()) > 4*token.Length || len(request.GetCsr()) > maxRequest {
		return enrollment{}, fmt.Errorf("%w: a field is too long", errRequest)
	}
	if err := clustername.Check(request.GetCluster(), e.config.HubNamespace); err != nil {
		return enrollment{}, fmt.Errorf("%w: %w", errRequest, err)
	}
	if err := validateUID(request.GetKubeSystemUid()); err != nil {
		return enrollment{}, err
	}
	csr, err := parseRequest(request.GetCsr())
	if err != nil {
		return enrollment{}, err
	}
	presented, tokenErr := token.Parse(request.GetToken())
	return enrollment{
		cluster:  request.GetCluster(),
		token:    presented,
		tokenErr: tokenErr,
		csr:      csr,
		key:      token.KeyHash(csr.RawSubjectPublicKeyInfo),
		uid:      request.GetKubeSystemUid(),
	}, nil
}

func parseRequest(der []byte) (*x509.CertificateRequest, error) {
	if len(der) == 0 || len(der) > maxRequest {
		return nil, fmt.Errorf("%w: certificate request of %d bytes", errRequest, len(der))
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate request: %w", errRequest, err)
	}
	return csr, nil
}

// checkRequest refuses a request that is not signed by its key or that asks for
// more than the one cluster.
func checkRequest(csr *x509.CertificateRequest, cluster identity.Cluster) error {
	if err := identity.CheckRequest(csr, cluster); err != nil {
		return fmt.Errorf("%w: %w", errRequest, err)
	}
	return nil
}
