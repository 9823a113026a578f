// Package vnic connects to vnicd, the NIC daemon, and reads the details of its errors.
//
// Package vnic/client/v1 has the messages and stubs of the API; the script generate makes it of the .proto files.
package vnic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Endpoint is where the daemon of a package listens.
const Endpoint = "unix:/run/vnic/control.sock"

// Config says where a daemon listens, and who we are. What is empty is what vnicctl takes: VNIC_ENDPOINT, VNIC_TLS_CA, VNIC_TLS_CERT
// and VNIC_TLS_KEY; without an endpoint in both, Endpoint.
type Config struct {
	// unix:PATH, or https://HOST:PORT with the three files (PEM).
	Endpoint string
	// The CA of the daemon's certificate.
	CA string
	// The certificate of this client.
	Cert string
	// The private key of the certificate.
	Key string
}

// Dial makes a connection, which begins with the first call. Options go to grpc.Dial, behind ours.
func Dial(config Config, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	endpoint := or(config.Endpoint, "VNIC_ENDPOINT")
	if endpoint == "" {
		endpoint = Endpoint
	}
	if strings.HasPrefix(endpoint, "unix:") {
		path := strings.TrimPrefix(endpoint, "unix:")
		dial := func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		options = append([]grpc.DialOption{grpc.WithInsecure(), grpc.WithContextDialer(dial)}, options...)
		return grpc.Dial("passthrough:///localhost", options...)
	}
	if !strings.HasPrefix(endpoint, "https://") {
		return nil, fmt.Errorf("%s: an endpoint is unix:PATH or https://HOST:PORT", endpoint)
	}
	secure, err := config.tls()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(secure))}, options...)
	return grpc.Dial(strings.TrimSuffix(strings.TrimPrefix(endpoint, "https://"), "/"), options...)
}

func (c Config) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(or(c.CA, "VNIC_TLS_CA"))
	if err != nil {
		return nil, fmt.Errorf("CA (or VNIC_TLS_CA): %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("CA (or VNIC_TLS_CA): no certificate in it")
	}
	pair, err := tls.LoadX509KeyPair(or(c.Cert, "VNIC_TLS_CERT"), or(c.Key, "VNIC_TLS_KEY"))
	if err != nil {
		return nil, fmt.Errorf("Cert and Key (or VNIC_TLS_CERT and VNIC_TLS_KEY): %w", err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, nil
}

func or(given, variable string) string {
	if given != "" {
		return given
	}
	return os.Getenv(variable)
}

// Details is what an error says besides its code and its message.
type Details struct {
	// Why, for programs, such as ETAG_MISMATCH; empty if there is nothing to tell apart.
	Reason string
	// More about it.
	Metadata map[string]string
	// Fields of the request that are wrong, with what is allowed.
	Violations map[string]string
}

// DetailsOf reads google.rpc.ErrorInfo and google.rpc.BadRequest of an error of a call.
func DetailsOf(err error) Details {
	details := Details{Violations: map[string]string{}}
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			details.Reason, details.Metadata = detail.Reason, detail.Metadata
		case *errdetails.BadRequest:
			for _, wrong := range detail.FieldViolations {
				details.Violations[wrong.Field] = wrong.Description
			}
		}
	}
	return details
}
