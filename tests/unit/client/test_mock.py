"""The mock that users test with: it checks, answers and records as the service would."""


def test_a_call_over_grpc_is_recorded_as_the_same_call_over_http(mock):
    with mock.client(api_key="k") as over_http, mock.grpc_client(api_key="k") as over_grpc:
        for client in (over_http, over_grpc):
            client.score(context=[("user", "hi")], response="a", options={"engagement": {"x": 1}}, request_id="r-1")
            client.models()
    first, second = mock.requests[:2], mock.requests[2:]
    for mine, same in zip(first, second, strict=True):
        assert (mine.method, mine.path, mine.body) == (same.method, same.path, same.body)
        assert mine.headers["authorization"] == same.headers["authorization"] == "Bearer k"
