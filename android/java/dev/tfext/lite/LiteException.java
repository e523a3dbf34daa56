package dev.tfext.lite;

/** What the engine refused or could not do: the message says what was expected, what came and what to do. */
public final class LiteException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The statuses of tf_ext_lite.h, in its order. */
  public enum Status {
    OK,
    INVALID_ARGUMENT,
    NOT_FOUND,
    DATA_LOSS,
    UNAVAILABLE,
    QUEUE_FULL,
    DEADLINE_EXCEEDED,
    CANCELLED,
    TIMEOUT,
    INTERNAL
  }

  private final Status status;

  /** Called by the native side. */
  LiteException(int status, String message) {
    super(message);
    this.status = of(status);
  }

  static Status of(int status) {
    Status[] all = Status.values();
    return status >= 0 && status < all.length ? all[status] : Status.INTERNAL;
  }

  /** Which kind of failure it is. */
  public Status status() {
    return status;
  }
}
