// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import "sync"

// AnnotationRegistration has the UID of the registration under which an author was
// recorded. While there is no registration whoever writes an object writes its annotations;
// the UID of the next one nobody knows before it is there, and from then on it is the
// webhook's to write.
const AnnotationRegistration = "spokelet.io/author-registration"

// Registration knows which registration of the webhook is in force. The zero value knows of
// none. It may be used by several goroutines.
type Registration struct {
	mu          sync.Mutex
	uid         string   // guarded by mu
	subscribers []func() // guarded by mu
}

// Set says which registration is in force, by its UID; "" says that none is.
func (r *Registration) Set(uid string) {
	r.mu.Lock()
	changed := r.uid != uid
	r.uid = uid
	subscribers := r.subscribers
	r.mu.Unlock()
	if !changed {
		return
	}
	for _, f := range subscribers {
		f()
	}
}

// UID is that of the registration in force, or "" without one: then nobody is an author.
func (r *Registration) UID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uid
}

// Subscribe has f called after each change of the UID. f must not block.
func (r *Registration) Subscribe(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers = append(r.subscribers, f)
}
