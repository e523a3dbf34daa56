package dev.tfext.lite;

/** How a request is to be run. */
public final class RequestOptions {
  /** No deadline, usual priority, any worker. */
  public static final RequestOptions NONE = new RequestOptions(0, 0, -1);

  final long sloMicros;
  final int priority;
  final int worker;

  private RequestOptions(long sloMicros, int priority, int worker) {
    this.sloMicros = sloMicros;
    this.priority = priority;
    this.worker = worker;
  }

  /** To be done within this time from the request, or dropped. */
  public RequestOptions withinMicros(long micros) {
    return new RequestOptions(micros, priority, worker);
  }

  /** The larger, the sooner. */
  public RequestOptions priority(int value) {
    return new RequestOptions(sloMicros, value, worker);
  }

  /** On this worker only. */
  public RequestOptions onWorker(int index) {
    return new RequestOptions(sloMicros, priority, index);
  }
}
