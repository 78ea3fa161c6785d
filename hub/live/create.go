// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// maxViewWork is the greatest size of a ViewWork in a request. It takes up to thirty times as
// much once it is decoded.
const maxViewWork = 64 << 10

// viewHandler answers the creation of viewworks. The way through the API
// machinery works out the managed fields of an object that nobody keeps, which
// takes longer than all else; and it may be asked to drop fields that it does
// not know, where a misspelt selector would then select everything.
type viewHandler struct {
	views  *viewStorage
	codecs codecs
}

// wrap serves the creation of viewworks and leaves the rest to next. The
// chain before it has authorized exactly what the request's info says.
func (h *viewHandler) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.APIGroup != livev1alpha1.GroupName || info.APIVersion != livev1alpha1.SchemeGroupVersion.Version ||
			info.Resource != viewWorksResource || info.Subresource != "" || info.Name != "" || info.Namespace == "" || info.Verb != "create" {
			next.ServeHTTP(w, r)
			return
		}
		h.serveCreate(w, r, info.Namespace)
	})
}

// serveCreate creates a ViewWork. The request takes one of its user's slots before the body is
// read: bodies that never end use the slots of their own user and no memory or requests in
// flight of others.
func (h *viewHandler) serveCreate(w http.ResponseWriter, r *http.Request, namespace string) {
	t, err := h.views.startRequest(r.Context(), namespace)
	if err != nil {
		h.writeErrorAndClose(w, r, err)
		return
	}
	// A caller who reads slowly still makes the hub hold the answer.
	defer t.close()
	deadline := http.NewResponseController(w)
	if err := deadline.SetReadDeadline(time.Now().Add(h.views.limits.ViewBodyTimeout)); err != nil {
		h.writeErrorAndClose(w, r, apierrors.NewInternalError(err))
		return
	}
	v, options, err := h.readRequest(r, namespace)
	if err != nil {
		h.writeErrorAndClose(w, r, err)
		return
	}
	// The connection may carry other requests.
	if err := deadline.SetReadDeadline(time.Time{}); err != nil {
		h.writeError(w, r, apierrors.NewInternalError(err))
		return
	}
	answer, err := h.views.create(r.Context(), v, options, t)
	if err != nil {
		h.writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusCreated)
	if err := encodeView(w, answer); err != nil {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
}

// writeErrorAndClose refuses a request whose body may not have arrived. A server of
// HTTP/1.1 would wait for it before it answers, unless the connection ends.
func (h *viewHandler) writeErrorAndClose(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	h.writeError(w, r, err)
}

func (h *viewHandler) writeError(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, h.codecs, livev1alpha1.SchemeGroupVersion, w, r)
}

// readRequest decodes the ViewWork and sets the namespace that was authorized.
func (h *viewHandler) readRequest(r *http.Request, namespace string) (*livev1alpha1.ViewWork, *metav1.CreateOptions, error) {
	if err := h.codecs.checkAccept(r); err != nil {
		return nil, nil, err
	}
	options := &metav1.CreateOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, options); err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := metav1validation.ValidateCreateOptions(options); len(errs) > 0 {
		return nil, nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	v, err := h.decode(r)
	if err != nil {
		return nil, nil, err
	}
	rest.WipeObjectMetaSystemFields(v)
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(namespace, v); err != nil {
		return nil, nil, err
	}
	return v, options, nil
}

func (h *viewHandler) decode(r *http.Request) (*livev1alpha1.ViewWork, error) {
	media, err := negotiation.NegotiateInputSerializer(r, false, h.codecs)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(&limitedReader{ReadCloser: r.Body, remaining: maxViewWork})
	switch {
	case errors.Is(err, errTooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", maxViewWork))
	case errors.Is(err, os.ErrDeadlineExceeded):
		// Over HTTP/1.1 the connection may end before this is written: a read that
		// fails ends the request's context.
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("the body did not arrive within %v", h.views.limits.ViewBodyTimeout), 0)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot read the body: %v", err))
	}
	kind := livev1alpha1.SchemeGroupVersion.WithKind("ViewWork")
	obj, got, err := h.codecs.DecoderToVersion(media.StrictSerializer, livev1alpha1.SchemeGroupVersion).Decode(body, &kind, &livev1alpha1.ViewWork{})
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is no ViewWork that is known here: %v", err))
	}
	v, ok := obj.(*livev1alpha1.ViewWork)
	if !ok || *got != kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is a %s, not a %s", got, kind))
	}
	return v, nil
}
